"""What may be kept of a file that somebody sent: nothing that names a patient, where the format has a place for that.

Of a DICOM only the attributes are kept that its pixels need, under a new identifier. What is written into the pixels
themselves stays. Pictures and NIfTI files are kept as they are; files that may name a patient elsewhere are refused.
"""

import hashlib
import io
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parsecaps.data import dicom, nifti, raster
from parsecaps.data.decoding import recognise
from parsecaps.data.raw_image import DefectError
from parsecaps.data.reader_pool import RefusedError, call
from parsecaps.data.reading import look_into, read_image

_PICTURES = (*raster.FORMATS, nifti.FORMAT)
_TABLE = ("LUTDescriptor", "LUTData")
_VALUES = ("RescaleSlope", "RescaleIntercept", "RescaleType", "WindowCenter", "WindowWidth", "VOILUTFunction")
_PIXELS = (
    "SOPClassUID",
    "Modality",
    "SamplesPerPixel",
    "PhotometricInterpretation",
    "PlanarConfiguration",
    "NumberOfFrames",
    "Rows",
    "Columns",
    "PixelAspectRatio",
    "BitsAllocated",
    "BitsStored",
    "HighBit",
    "PixelRepresentation",
    *(
        f"{colour}PaletteColorLookupTable{part}"
        for colour in ("Red", "Green", "Blue")
        for part in ("Descriptor", "Data")
    ),
    *(f"Segmented{colour}PaletteColorLookupTableData" for colour in ("Red", "Green", "Blue")),
    "ExtendedOffsetTable",
    "ExtendedOffsetTableLengths",
    *dicom.PIXEL_DATA,
)
_GROUPS = ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence")
_IN_GROUP = ("PixelValueTransformationSequence", "FrameVOILUTSequence")


class KeptFile(NamedTuple):
    """What is kept of a file, the ending of its name, and the study that it belongs to, blank where it names none.

    The study is for whoever keeps it to make a pseudonym of; it must not be kept itself.
    """

    content: bytes
    suffix: str
    study: str


def kept_file(path: Path) -> KeptFile:
    """What may be kept of an image file; refused where that would not be read as the same image."""
    try:
        suffix, content, study = call(read_kept, path)
    except RefusedError as refused:
        reason = "is damaged; replace the file" if refused.damaged else refused  # a library may quote the header
        raise ValueError(f"{path} {reason}") from None
    kept = KeptFile(content.tobytes(), suffix, study)
    if suffix == dicom.FORMAT.suffixes[0]:
        _check_same(path, kept)
    return kept


def read_kept(path: Path) -> list[Any]:
    """The suffix, the bytes to keep and the study, in a process that reads files from outside."""
    form = recognise(path)
    if form is dicom.FORMAT:
        content, study = _pixels_only(path)
    elif form in _PICTURES:
        content, study = path.read_bytes(), ""
    else:
        raise DefectError(f"is a {form.name}, which is not kept: it may name patients; send it as PNG or DICOM")
    packed = form is nifti.FORMAT and content[:2] == b"\x1f\x8b"
    return [form.suffixes[-1 if packed else 0], np.frombuffer(content, np.uint8), study]


def _check_same(path: Path, kept: KeptFile) -> None:
    """Refuse a DICOM whose first and last images need more of its header than is kept."""
    frames = look_into(path).frames
    with tempfile.TemporaryDirectory(prefix="parsecaps-kept-") as folder:
        again = Path(folder, f"kept{kept.suffix}")
        again.write_bytes(kept.content)
        for frame in [None] if frames == 1 else sorted({0, frames - 1}):
            one = read_image(path, frame)
            try:
                other = read_image(again, frame)
                same = one.full_range == other.full_range and np.array_equal(one.pixels, other.pixels)
            except ValueError:
                same = False
            if not same:
                raise ValueError(f"{path} cannot be kept without its header; send it as PNG, or as a plain DICOM")


def _pixels_only(path: Path) -> tuple[bytes, str]:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import SecondaryCaptureImageStorage, generate_uid

    data = dicom.open_dicom(path)
    kept = Dataset()
    _copy(data, kept, (*_PIXELS, *_VALUES))
    for name in ("ModalityLUTSequence", "VOILUTSequence"):
        _copy_items(data, kept, name, _TABLE)
    for name in _GROUPS:
        if data.get(name):
            groups = [_group(item) for item in data[name].value]
            setattr(kept, name, groups)
    pixels = next((kept[name].value for name in dicom.PIXEL_DATA if name in kept), b"")
    kept.SOPInstanceUID = generate_uid(entropy_srcs=[hashlib.sha256(pixels).hexdigest()])
    kept.file_meta = FileMetaDataset()
    kept.file_meta.TransferSyntaxUID = data.file_meta.TransferSyntaxUID
    kept.file_meta.MediaStorageSOPClassUID = kept.get("SOPClassUID") or SecondaryCaptureImageStorage
    kept.file_meta.MediaStorageSOPInstanceUID = kept.SOPInstanceUID
    written = io.BytesIO()
    kept.save_as(written, enforce_file_format=True)
    return written.getvalue(), str(data.get("StudyInstanceUID") or "").strip()


def _group(item: Any) -> Any:
    from pydicom.dataset import Dataset

    group = Dataset()
    for name in _IN_GROUP:
        _copy_items(item, group, name, _VALUES)
    return group


def _copy_items(source: Any, target: Any, name: str, attributes: Iterable[str]) -> None:
    """Copy a sequence, and of its items some attributes."""
    from pydicom.dataset import Dataset

    if not source.get(name):
        return
    items = []
    for item in source[name].value:
        items.append(Dataset())
        _copy(item, items[-1], attributes)
    setattr(target, name, items)


def _copy(source: Any, target: Any, attributes: Iterable[str]) -> None:
    for name in attributes:
        if name in source:
            target.add(source[name])
