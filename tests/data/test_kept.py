"""What is kept of a file: the same pixels, and nothing that names a patient."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydicom import dcmread
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.uid import ExplicitVRBigEndian, JPEG2000Lossless, RLELossless

from parsecaps.data.deidentify import kept_file
from parsecaps.data.reading import read_image
from tests.data.image_files import colour, dicom, grey, write_cemri, write_dicom
from tests.messages import refused

CT = grey(48, 64, levels=4096).astype(np.int16)
NAMED: dict[str, Any] = {
    "PatientName": "Secret^Ann",
    "PatientID": "secret-7",
    "PatientBirthDate": "19500101",
    "StudyInstanceUID": "1.2.3.4",
    "SeriesDescription": "of Ann secret",
    "InstitutionName": "secret hospital",
}


def check(path: Path, tmp_path: Path, frame: int | None = None) -> Dataset:
    """The kept file must read as the same image; gives its data set."""
    kept = kept_file(path)
    assert b"ecret" not in kept.content
    (tmp_path / "kept").write_bytes(kept.content)
    one, other = read_image(path, frame), read_image(tmp_path / "kept", frame)
    assert one.full_range == other.full_range
    assert np.array_equal(one.pixels, other.pixels)
    assert kept.suffix == ".dcm"
    return dcmread(tmp_path / "kept")


@pytest.mark.parametrize(
    ("pixels", "attributes"),
    [
        (CT, {"RescaleSlope": 2, "RescaleIntercept": -1024, "WindowCenter": [40, 600], "WindowWidth": [400, 2800]}),
        (CT, {"PhotometricInterpretation": "MONOCHROME1"}),
        (colour(), {}),
        (grey(), {"syntax": RLELossless}),
        (grey(64, 64), {"syntax": JPEG2000Lossless}),
        (np.stack([grey(), 255 - grey()]), {"frames": 2}),
    ],
)
def test_a_dicom_keeps_its_pixels_alone(tmp_path: Path, pixels: np.ndarray, attributes: dict[str, Any]) -> None:
    path = write_dicom(tmp_path / "a.dcm", pixels, **NAMED, **attributes)
    found = check(path, tmp_path, 1 if "frames" in attributes else None)
    assert not {"PatientName", "PatientID", "StudyInstanceUID", "InstitutionName"} & set(dir(found))
    assert found.SOPInstanceUID != dcmread(path).SOPInstanceUID
    assert kept_file(path).study == "1.2.3.4"
    assert kept_file(path).content == kept_file(path).content


def test_private_and_nested_attributes_go(tmp_path: Path) -> None:
    data = dicom(CT, **NAMED)
    data.private_block(0x0099, "secret maker", create=True).add_new(1, "LO", "secret")
    table, item = Dataset(), Dataset()
    table.LUTDescriptor, table.LUTData, table.LUTExplanation = [4, 1000, 8], [200, 100, 50, 0], "secret"
    data.VOILUTSequence = [table]
    data.VOILUTSequence[0]["LUTDescriptor"].VR = data.VOILUTSequence[0]["LUTData"].VR = "US"
    item.PatientID, item.PixelValueTransformationSequence = "secret", [Dataset()]
    item.PixelValueTransformationSequence[0].RescaleSlope = 3
    item.PixelValueTransformationSequence[0].RescaleIntercept = 7
    item.PixelValueTransformationSequence[0].ContentDescription = "secret"
    data.SharedFunctionalGroupsSequence = [item]
    data.save_as(tmp_path / "a.dcm", enforce_file_format=True)
    check(tmp_path / "a.dcm", tmp_path)


@pytest.mark.parametrize("name", ["JPEG2000.dcm", "MR_small_bigendian.dcm", "examples_palette.dcm"])
def test_files_of_others(tmp_path: Path, name: str) -> None:
    path = get_testdata_file(name)
    assert isinstance(path, str)
    found = check(Path(path), tmp_path)
    assert "PatientName" not in found
    if "bigendian" in name:
        assert found.file_meta.TransferSyntaxUID == ExplicitVRBigEndian


def test_pictures_stay_and_other_files_are_refused(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(colour()).save(tmp_path / "a.png")
    kept = kept_file(tmp_path / "a.png")
    assert (kept.content, kept.suffix, kept.study) == ((tmp_path / "a.png").read_bytes(), ".png", "")
    write_cemri(tmp_path / "a.mat", CT, CT > 9)
    with refused(ValueError):
        kept_file(tmp_path / "a.mat")
    (tmp_path / "a.txt").write_text("nothing")
    with refused(ValueError):
        kept_file(tmp_path / "a.txt")
