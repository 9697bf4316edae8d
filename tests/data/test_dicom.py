"""DICOM: values of the modality, windows, inversion, colours, frames and compression."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.pixels.processing import apply_windowing, convert_color_space
from pydicom.uid import JPEG2000Lossless, RLELossless

from parsecaps.data.preparation import Preparation
from parsecaps.data.raw_image import DefectError
from parsecaps.data.reading import decode_image, image_size, look_into, read_image
from tests.data.image_files import colour, dicom, grey, write_dicom
from tests.messages import refused

CT = grey(48, 64, levels=4096).astype(np.int16)


def test_values_of_the_modality_and_the_first_window(tmp_path: Path) -> None:
    window = {"WindowCenter": [40, 600], "WindowWidth": [400, 2800]}
    path = write_dicom(tmp_path / "a", CT, RescaleSlope=1, RescaleIntercept=-1024, **window)
    raw = read_image(path)
    assert np.array_equal(raw.pixels, CT - 1024.0)
    assert raw.full_range == (-160, 239)
    assert image_size(path) == (48, 64)
    assert look_into(path).frames == 1


@pytest.mark.parametrize(
    ("attributes", "patient"), [({"PatientID": " ann 7 "}, "ann 7"), ({"PatientID": ""}, ""), ({}, "")]
)
def test_the_header_may_name_the_patient(tmp_path: Path, attributes: dict[str, str], patient: str) -> None:
    assert look_into(write_dicom(tmp_path / "a", CT, **attributes)).patient == patient


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_windows_agree_with_pydicom(tmp_path: Path, function: str) -> None:
    attributes = {"WindowCenter": 1700, "WindowWidth": 900, "VOILUTFunction": function}
    data = dicom(CT.astype(np.uint16), BitsStored=12, HighBit=11, **attributes)
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    expected = apply_windowing(CT.astype(np.uint16), data) / 4095
    low, high = read_image(tmp_path / "a.dcm").full_range or (0, 0)
    scaled = np.clip((read_image(tmp_path / "a.dcm").pixels - low) / (high - low), 0, 1)
    assert np.abs(scaled - expected).max() < 1e-5


def test_lookup_table_in_place_of_a_window(tmp_path: Path) -> None:
    table = Dataset()
    table.LUTDescriptor = [4, 1000, 8]
    table.LUTData = [200, 100, 50, 0]
    data = dicom(CT.astype(np.uint16), VOILUTSequence=[table])
    data.VOILUTSequence[0]["LUTDescriptor"].VR = data.VOILUTSequence[0]["LUTData"].VR = "US"
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    raw = read_image(tmp_path / "a.dcm")
    expected = np.select([CT <= 1000, CT == 1001, CT == 1002], [200, 100, 50], 0)
    assert np.array_equal(raw.pixels, expected)
    assert raw.full_range == (0, 255)


@pytest.mark.parametrize("window", [{}, {"WindowCenter": 2000, "WindowWidth": 1001}])
def test_monochrome1_is_the_negative(tmp_path: Path, window: dict[str, Any]) -> None:
    dark = read_image(write_dicom(tmp_path / "a", CT, PhotometricInterpretation="MONOCHROME1", **window))
    bright = read_image(write_dicom(tmp_path / "b", CT, **window))
    assert dark.full_range == bright.full_range
    low, high = bright.full_range or (CT.min(), CT.max())
    assert np.array_equal(dark.pixels - low, high - bright.pixels)
    size = Preparation(size=20, square="stretch")
    if window:
        assert (size.prepare(dark) + size.prepare(bright) - 1).abs().max() < 1.01 / 255


def test_eight_bits_have_their_own_range_and_deeper_ones_go_by_content(tmp_path: Path) -> None:
    assert read_image(write_dicom(tmp_path / "a", grey())).full_range == (0, 255)
    assert read_image(write_dicom(tmp_path / "b", CT)).full_range is None


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_compressed_frames_by_number(tmp_path: Path, syntax: Any) -> None:
    frames = np.stack([CT, CT[::-1], CT // 2]).astype(np.uint16)
    path = write_dicom(tmp_path / "a.dcm", frames, frames=3, syntax=syntax)
    assert look_into(path).frames == 3
    for number in range(3):
        assert np.array_equal(read_image(path, number).pixels, frames[number])
    with refused(ValueError):
        read_image(path)
    with refused(ValueError):
        read_image(path, 7)


def test_frames_may_have_windows_and_rescaling_of_their_own(tmp_path: Path) -> None:
    def group(**attributes: Any) -> Dataset:
        item = Dataset()
        for name, value in attributes.items():
            setattr(item, name, value)
        return item

    data = dicom(np.stack([CT, CT]), frames=2)
    values = [group(RescaleSlope=slope, RescaleIntercept=0) for slope in (2, 3)]
    data.PerFrameFunctionalGroupsSequence = [group(PixelValueTransformationSequence=[value]) for value in values]
    data.SharedFunctionalGroupsSequence = [group(FrameVOILUTSequence=[group(WindowCenter=100, WindowWidth=11)])]
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    raw = read_image(tmp_path / "a.dcm", 1)
    assert np.array_equal(raw.pixels, CT * 3.0)
    assert raw.full_range == (94.5, 104.5)


def test_colour(tmp_path: Path) -> None:
    raw = read_image(write_dicom(tmp_path / "rgb.dcm", colour()))
    assert np.array_equal(raw.pixels, colour())
    assert raw.full_range == (0, 255)
    ybr = convert_color_space(colour(), "RGB", "YBR_FULL")
    path = write_dicom(tmp_path / "ybr.dcm", ybr, PhotometricInterpretation="YBR_FULL")
    assert np.abs(read_image(path).pixels.astype(int) - colour()).max() <= 2


def test_palette(tmp_path: Path) -> None:
    tables = {f"{name}PaletteColorLookupTable": n for n, name in enumerate(("Red", "Green", "Blue"), 1)}
    attributes: dict[str, Any] = {f"{name}Descriptor": [256, 0, 16] for name in tables}
    attributes |= {f"{name}Data": (np.arange(256) * 80 * n).astype("<u2").tobytes() for name, n in tables.items()}
    data = dicom(grey(), PhotometricInterpretation="PALETTE COLOR", **attributes)
    for name in tables:
        data[f"{name}Descriptor"].VR = "US"
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    raw = read_image(tmp_path / "a.dcm")
    assert np.array_equal(raw.pixels, grey().astype(int)[:, :, None] * [80, 160, 240])
    assert raw.full_range == (0, 65535)


@pytest.mark.parametrize("kind", ["RLE", "bigendian", "implicit", "jp2klossless", "jpeg_ls_lossless"])
def test_lossless_syntaxes_give_the_same_pixels(kind: str) -> None:
    plain, packed = (get_testdata_file(name, download=False) for name in ("MR_small.dcm", f"MR_small_{kind}.dcm"))
    assert isinstance(plain, str)
    assert isinstance(packed, str)
    assert np.array_equal(read_image(packed).pixels, read_image(plain).pixels)
    assert np.array_equal(read_image(plain).pixels, dcmread(plain).pixel_array)
    assert read_image(packed).full_range == (-200, 1399)


def test_without_preamble_and_transfer_syntax(tmp_path: Path) -> None:
    data = dicom(CT)
    del data.file_meta
    data.save_as(tmp_path / "old", implicit_vr=True, little_endian=True)
    assert np.array_equal(read_image(tmp_path / "old").pixels, CT)


def test_a_missing_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_dicom(tmp_path / "a.dcm", CT, syntax=JPEG2000Lossless)
    monkeypatch.setattr("pydicom.pixels.decoders.base.Decoder.available_plugins", ("gdcm",))
    with refused(DefectError):
        decode_image(path, None)


def test_no_pixels_and_too_many(tmp_path: Path) -> None:
    report = get_testdata_file("test-SR.dcm", download=False)
    with refused(ValueError):
        read_image(str(report))
    path = write_dicom(tmp_path / "a.dcm", CT, Rows=30_000, Columns=30_000)
    for function in (read_image, image_size, look_into):
        with refused(ValueError):
            function(path)
