"""DICOM, by pydicom: MONAI's `PydicomReader` knows neither windows nor MONOCHROME1, and it swaps the axes."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.raw_image import DefectError, Format, LastFiles, RawImage, check_size, pick_frame
from parsecaps.system.extras import install_command

# The first that can decode a file does, so that the pixels do not depend on what else is installed. Not GDCM: a damaged
# file makes it end the process. pydicom comes before pylibjpeg, whose RLE decoder panics on one.
_PLUGINS = ("pydicom", "pylibjpeg", "pyjpegls", "pillow")
_LARGE = 2**28  # bytes of a file of which only the frame that is asked for is read
PIXEL_DATA = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_SOI, _SOC = b"\xff\xd8", b"\xff\x4f"
_JP2 = b"\0\0\0\x0cjP  "
_FRAMES = {0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF, 0xF7}  # SOF0 to 15; JPEG-LS
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length: TEM, RST0 to 7, SOI
_DAMAGED_FRAME = "has a frame whose compressed header cannot be read; replace the file"


def read(path: Path, frame: int | None) -> RawImage:
    """Read an image or, by its number, a frame of several.

    Grey values are rescaled to those of the modality, and `full_range` is the file's first window; a lookup table or a
    sigmoid is applied. MONOCHROME1 is inverted, so that high values are bright; palettes and YBR become RGB.
    """
    data = _dataset(path)
    if _pixels(data) is None and path.stat().st_size <= _LARGE:
        raise DefectError("is a DICOM without pixels; give one that holds an image")
    index = pick_frame(frame, num_frames(data))
    stored = _decode(path, data, index)
    if stored.ndim == 3:
        return RawImage(stored, (0.0, 2.0 ** int(data.BitsStored) - 1))
    if data.PhotometricInterpretation == "PALETTE COLOR":
        from pydicom.pixels.processing import apply_color_lut

        bits = int(data.RedPaletteColorLookupTableDescriptor[2])
        return RawImage(apply_color_lut(stored, data)[:, :, :3], (0.0, 2.0**bits - 1))
    headers = list(_headers(data, index))
    values = _rescaled(data, headers, stored)
    values, full_range = _windowed(data, headers, values)
    if full_range is None and values is stored and stored.dtype == np.uint8:
        full_range = (0.0, 2.0 ** int(data.BitsStored) - 1)
    if data.PhotometricInterpretation == "MONOCHROME1":
        low, high = full_range or (values.min(), values.max())
        values = (float(low) + float(high) - values.astype(np.float64)).astype(np.float32)
    return RawImage(values, full_range)


def count_frames(path: Path) -> int:
    """The number of frames, from the header; refused where the file cannot hold them."""
    from pydicom.encaps import parse_basic_offsets, parse_fragments
    from pydicom.filebase import DicomBytesIO

    frames = num_frames(open_dicom(path, stop_before_pixels=True))
    if frames <= 1:
        return frames
    data = _dataset(path)
    compressed, pixels = data.file_meta.TransferSyntaxUID.is_compressed, _pixels(data)
    if compressed and pixels is not None:
        stream = DicomBytesIO(pixels)
        parse_basic_offsets(stream)
        held = parse_fragments(stream)[0]
    else:  # of a large file the length must do; each compressed frame has a head of 8 bytes
        length = path.stat().st_size if pixels is None else len(pixels)
        bits = int(data.get("BitsAllocated") or 1) * int(data.get("SamplesPerPixel") or 1)
        bits = bits * 2 // 3 if data.get("PhotometricInterpretation") == "YBR_FULL_422" else bits
        held = length * 8 // (64 if compressed else max(1, math.prod(_size(data)) * bits))
    if frames > held:
        raise DefectError(f"says that it has {frames:,} frames, but holds at most {held:,}; replace the file")
    return frames


def open_dicom(path: Path, **options: Any) -> Any:
    """The data set of a file, with its transfer syntax; its options are those of `pydicom.dcmread`."""
    from pydicom import dcmread
    from pydicom.uid import ExplicitVRBigEndian, ExplicitVRLittleEndian, ImplicitVRLittleEndian

    data = dcmread(path, force=True, **options)
    if "TransferSyntaxUID" not in data.file_meta:  # old archives leave it out, and then nothing is compressed
        implicit, little = data.original_encoding
        explicit = ExplicitVRLittleEndian if little else ExplicitVRBigEndian
        data.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian if implicit else explicit
    return data


@LastFiles
def _dataset(path: Path) -> Any:
    """The whole data set; of a large file without the pixels."""
    return open_dicom(path, stop_before_pixels=path.stat().st_size > _LARGE)


def _size(data: Any) -> tuple[int, int]:
    if data.get("Rows") is None or data.get("Columns") is None:
        raise DefectError("is a DICOM without rows and columns; give one that holds an image")
    return check_size(int(data.Rows), int(data.Columns))


def num_frames(data: Any) -> int:
    """How many frames a header says that there are; refused where it has no rows and columns."""
    _size(data)
    return int(data.get("NumberOfFrames") or 1)


def _pixels(data: Any) -> bytes | None:
    """The pixels as they are stored, None where they were left in the file."""
    return next((data[name].value for name in PIXEL_DATA if name in data), None)


def _decode(path: Path, data: Any, index: int) -> NDArray[Any]:
    """The stored values of one frame: (H, W), or (H, W, 3) in RGB."""
    from pydicom.encaps import get_frame
    from pydicom.pixels.decoders.base import get_decoder
    from pydicom.pixels.utils import pixel_array

    syntax = data.file_meta.TransferSyntaxUID
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError:
        raise DefectError(f"is compressed as {syntax.name}, which cannot be decoded; save it uncompressed") from None
    plugin = next((name for name in _PLUGINS if name in decoder.available_plugins), "")
    if syntax.is_encapsulated and not plugin:
        raise DefectError(f"is compressed as {syntax.name}, which needs a plugin; run {install_command('pylibjpeg')}")
    pixels = _pixels(data)
    if pixels is not None and syntax.is_encapsulated:
        tables = (data.get("ExtendedOffsetTable"), data.get("ExtendedOffsetTableLengths"))
        offsets = (tables[0], tables[1]) if all(tables) else None
        frame = get_frame(pixels, index, extended_offsets=offsets, number_of_frames=num_frames(data))
        _check_same(data, compressed_size(frame))
    stored: NDArray[Any] = pixel_array(path if pixels is None else data, index=index, decoding_plugin=plugin)
    _check_same(data, stored.shape[:2])
    return stored


def _check_same(data: Any, size: tuple[int, ...] | None) -> None:
    if size is not None and size != _size(data):
        raise DefectError(f"holds {size[1]} x {size[0]} pixels, not what its header says; export it again")


def compressed_size(frame: bytes) -> tuple[int, int] | None:
    """Height and width by the own header of a JPEG, JPEG-LS or JPEG 2000; None for another compression (RLE).

    A decoder allocates what the frame says, whatever the header around it says, so the two are compared first.

    >>> compressed_size(bytes.fromhex("ffd8 ffc0 000b 08 0010 0020 01 01 11 00"))
    (16, 32)
    """
    if frame.startswith(_SOI):
        return _jpeg(frame)
    if frame.startswith(_JP2):
        return _jpeg_2000(frame[_codestream(frame) :])
    return _jpeg_2000(frame) if frame.startswith(_SOC) else None


def _jpeg(frame: bytes) -> tuple[int, int]:
    place = len(_SOI)
    while place + 9 <= len(frame) and frame[place] == 0xFF:
        kind = frame[place + 1]
        if kind == 0xFF:  # a fill byte
            place += 1
        elif kind in _ALONE:
            place += 2
        elif kind in _FRAMES:
            return _big_endian(frame, place + 5, 2), _big_endian(frame, place + 7, 2)
        else:
            place += 2 + max(2, _big_endian(frame, place + 2, 2))
    raise DefectError(_DAMAGED_FRAME)


def _codestream(frame: bytes) -> int:
    """Where the codestream begins in the boxes of a JP2 file."""
    place, length = len(_JP2) + 4, 8
    while place + 8 <= len(frame) and length >= 8:
        if frame[place + 4 : place + 8] == b"jp2c":
            return place + 8
        length = _big_endian(frame, place, 4)
        place += length
    raise DefectError(_DAMAGED_FRAME)


def _jpeg_2000(stream: bytes) -> tuple[int, int]:
    """SIZ, the second marker of every codestream (ISO 15444-1, A.5.1): the extent of the grid less its offset."""
    if stream[:4] != _SOC + b"\xff\x51" or len(stream) < 24:
        raise DefectError(_DAMAGED_FRAME)
    width, height, left, top = (_big_endian(stream, 8 + 4 * i, 4) for i in range(4))
    return height - top, width - left


def _big_endian(data: bytes, place: int, length: int) -> int:
    return int.from_bytes(data[place : place + length], "big")


def _headers(data: Any, index: int) -> Iterator[Any]:
    """Where rescaling and window may stand: in the data set, or in the functional groups of a frame."""
    yield data
    for groups in frame_groups(data, index):
        for group in ("PixelValueTransformationSequence", "FrameVOILUTSequence"):
            yield from (groups.get(group) or [])[:1]


def frame_groups(data: Any, index: int) -> Iterator[Any]:
    """The functional groups of a frame, then those of all frames."""
    for name, item in (("PerFrameFunctionalGroupsSequence", index), ("SharedFunctionalGroupsSequence", 0)):
        if name in data and data[name].VR == "SQ" and len(data[name].value) > item:
            yield data[name].value[item]


def _number(headers: Sequence[Any], keyword: str) -> float | None:
    """The first value of an attribute in the first header that has it."""
    for header in headers:
        value = header.get(keyword)
        if isinstance(value, Sequence) and not isinstance(value, str):
            value = value[0] if len(value) else None
        if value not in (None, ""):
            if not math.isfinite(number := float(value)):
                raise DefectError(f"has a {keyword} of {value}, which is no number; correct its header")
            return number
    return None


def _rescaled(data: Any, headers: Sequence[Any], stored: NDArray[Any]) -> NDArray[Any]:
    if data.get("ModalityLUTSequence"):
        return _looked_up(data, data.ModalityLUTSequence[0], stored)[0]
    slope, intercept = _number(headers, "RescaleSlope"), _number(headers, "RescaleIntercept") or 0
    slope = 1 if slope is None else slope
    if (slope, intercept) == (1, 0):
        return stored
    return (stored.astype(np.float64) * slope + intercept).astype(np.float32)


def _windowed(
    data: Any, headers: Sequence[Any], values: NDArray[Any]
) -> tuple[NDArray[Any], tuple[float, float] | None]:
    """The first window as a range (PS3.3 C.11.2.1.2); without one, a lookup table."""
    center, width = _number(headers, "WindowCenter"), _number(headers, "WindowWidth")
    if center is not None and width is not None and width > 0:
        function = next((header.VOILUTFunction for header in headers if header.get("VOILUTFunction")), "LINEAR")
        if function == "SIGMOID":
            return (1 / (1 + np.exp(-4 * (values.astype(np.float64) - center) / width))).astype(np.float32), (0.0, 1.0)
        if function != "LINEAR_EXACT":
            center, width = center - 0.5, max(width - 1, 0)
        return values, (center - width / 2, center + width / 2)
    if data.get("VOILUTSequence"):
        return _looked_up(data, data.VOILUTSequence[0], values)
    return values, None


def _looked_up(data: Any, table: Any, values: NDArray[Any]) -> tuple[NDArray[Any], tuple[float, float]]:
    """Values through a lookup table, whose ends are extended, and the range of its entries."""
    _, first, bits = (int(number) for number in table.LUTDescriptor)
    entries = table.LUTData
    if isinstance(entries, bytes):
        entries = np.frombuffer(entries, "<u2" if data.original_encoding[1] else ">u2")
    entries = np.asarray(entries, np.uint16)
    place = np.clip(values.astype(np.int64) - first, 0, len(entries) - 1)
    return entries[place], (0.0, 2.0**bits - 1)


def _recognise(head: bytes) -> bool:
    """The mark after the preamble; a file without a preamble begins with a tag of group 2 or 8."""
    return head[128:132] == b"DICM" or (head[:2] in (b"\x02\0", b"\x08\0") and head[3:4] == b"\0")


FORMAT = Format(
    name="DICOM",
    suffixes=(".dcm", ".dicom"),
    recognise=_recognise,
    read=read,
    count=count_frames,
    size=lambda path: _size(open_dicom(path, stop_before_pixels=True)),
    patient=lambda path: str(open_dicom(path, stop_before_pixels=True).get("PatientID") or "").strip(),
)


def available_decoders() -> dict[str, bool]:
    """Whether the plugins for each compression of DICOM are installed."""
    from pydicom import uid
    from pydicom.pixels.decoders.base import get_decoder

    syntaxes = {
        "RLE": uid.RLELossless,
        "JPEG": uid.JPEGBaseline8Bit,
        "JPEG lossless": uid.JPEGLosslessSV1,
        "JPEG-LS": uid.JPEGLSLossless,
        "JPEG 2000": uid.JPEG2000Lossless,
    }
    return {name: not set(_PLUGINS).isdisjoint(get_decoder(each).available_plugins) for name, each in syntaxes.items()}
