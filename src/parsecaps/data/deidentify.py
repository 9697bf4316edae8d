"""De-identified copies of incoming files, and the headers of new DICOM objects.

Of a DICOM, only the attributes that its pixels need are kept, under a new identifier; what is written into the pixels
stays. Pictures and NIfTI files are kept as they are; files that may name a patient elsewhere are refused.

A new DICOM object beside an image repeats the patient, the study, references and geometry of its header, as far as the
standard allows them: a file with an invalid identifier is refused, an invalid description left out.
"""

import hashlib
import io
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parsecaps.data import dicom, nifti, raster
from parsecaps.data.raw_image import GZIP, DefectError, LastFiles, pick_frame
from parsecaps.data.reader_pool import call_or_name
from parsecaps.data.reading import in_reader, look_into, read_image, recognise

_PICTURES = (*raster.FORMATS, nifti.FORMAT)
_VALUES = ("RescaleSlope", "RescaleIntercept", "RescaleType", "WindowCenter", "WindowWidth", "VOILUTFunction")
_COLOURS = ("Red", "Green", "Blue")
_PIXELS = (
    *("SOPClassUID", "Modality", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration"),
    *("NumberOfFrames", "Rows", "Columns", "PixelAspectRatio"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation"),
    *(f"{each}PaletteColorLookupTable{part}" for each in _COLOURS for part in ("Descriptor", "Data")),
    *(f"Segmented{each}PaletteColorLookupTableData" for each in _COLOURS),
    *("ExtendedOffsetTable", "ExtendedOffsetTableLengths", *dicom.PIXEL_DATA),
)
_TABLE = dict.fromkeys(("LUTDescriptor", "LUTData"))
_GROUP = dict.fromkeys(("PixelValueTransformationSequence", "FrameVOILUTSequence"), dict.fromkeys(_VALUES))
_KEPT: dict[str, Any] = {  # what is kept of a DICOM: of a sequence what stands behind it, of the rest all
    **dict.fromkeys((*_PIXELS, *_VALUES)),
    **dict.fromkeys(("ModalityLUTSequence", "VOILUTSequence"), _TABLE),
    **dict.fromkeys(("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"), _GROUP),
}

_NEEDED = ("PatientID", "StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "SOPClassUID")
_IDENTIFIERS = (*_NEEDED, "PatientName", "IssuerOfPatientID", "AccessionNumber", "StudyID", "FrameOfReferenceUID")
_DESCRIPTIONS = (
    *("PatientBirthDate", "PatientSex", "PatientAge", "PatientSize", "PatientWeight"),
    *("StudyDate", "StudyTime", "StudyDescription", "ReferringPhysicianName"),
    *("SeriesNumber", "InstanceNumber", "Manufacturer", "PositionReferenceIndicator"),
    *("Laterality", "ImageLaterality", "BurnedInAnnotation", "RecognizableVisualFeatures"),
    *("LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod"),
)
_CHOICES = {
    "PatientSex": ("M", "F", "O"),
    **dict.fromkeys(("Laterality", "ImageLaterality"), ("L", "R")),
    "BurnedInAnnotation": ("YES", "NO"),
    "RecognizableVisualFeatures": ("YES", "NO"),
    "LossyImageCompression": ("00", "01"),
}
# where an attribute of the geometry stands in the functional groups of a frame, and how many numbers it has
_GEOMETRY = {
    "ImagePositionPatient": ("PlanePositionSequence", 3),
    "ImageOrientationPatient": ("PlaneOrientationSequence", 6),
    "PixelSpacing": ("PixelMeasuresSequence", 2),
    "SliceThickness": ("PixelMeasuresSequence", 1),
}
_header = LastFiles(partial(dicom.open_dicom, stop_before_pixels=True))
_TOLERANCE = 1e-3  # of the length and the angle of the axes


class KeptFile(NamedTuple):
    """What is kept of a file, the ending of its name, and its study, to make a pseudonym of: it must not be kept."""

    content: bytes
    suffix: str
    study: str


def kept_file(path: Path) -> KeptFile:
    """What may be kept of an image file; refused if that would not be read as the same image."""
    suffix, content, study = call_or_name(read_kept, path)  # without what a library says: it may quote the header
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
    packed = form is nifti.FORMAT and content.startswith(GZIP)
    return [form.suffixes[-1 if packed else 0], np.frombuffer(content, np.uint8), study]


def _check_same(path: Path, kept: KeptFile) -> None:
    frames = look_into(path).frames
    with tempfile.TemporaryDirectory(prefix="parsecaps-kept-") as folder:
        again = Path(folder, f"kept{kept.suffix}")
        again.write_bytes(kept.content)
        for frame in [None] if frames == 1 else sorted({0, frames - 1}):
            one = read_image(path, frame)
            with suppress(ValueError):
                other = read_image(again, frame)
                if one.full_range == other.full_range and np.array_equal(one.pixels, other.pixels):
                    continue
            raise ValueError(f"{path} cannot be kept without its header; send it as PNG, or as a plain DICOM")


def _pixels_only(path: Path) -> tuple[bytes, str]:
    from pydicom.dataset import FileMetaDataset
    from pydicom.uid import SecondaryCaptureImageStorage, generate_uid

    data = dicom.open_dicom(path)
    kept = _part_of(data, _KEPT)
    pixels = next((kept[name].value for name in dicom.PIXEL_DATA if name in kept), b"")
    kept.SOPInstanceUID = generate_uid(entropy_srcs=[hashlib.sha256(pixels).hexdigest()])
    kept.file_meta = FileMetaDataset()
    kept.file_meta.TransferSyntaxUID = data.file_meta.TransferSyntaxUID
    kept.file_meta.MediaStorageSOPClassUID = kept.get("SOPClassUID") or SecondaryCaptureImageStorage
    kept.file_meta.MediaStorageSOPInstanceUID = kept.SOPInstanceUID
    written = io.BytesIO()
    kept.save_as(written, enforce_file_format=True)
    return written.getvalue(), str(data.get("StudyInstanceUID") or "").strip()


def _part_of(data: Any, wanted: Mapping[str, Any]) -> Any:
    """The `wanted` attributes of a data set; of sequences, those that `wanted` has for their items."""
    from pydicom.dataset import Dataset

    kept = Dataset()
    for name, inner in wanted.items():
        if inner is None and name in data:
            kept.add(data[name])
        elif inner is not None and data.get(name):
            setattr(kept, name, [_part_of(item, inner) for item in data[name].value])
    return kept


@in_reader
def read_dicom_header(path: Path, frame: int | None = None) -> str | None:
    """What new objects beside a DICOM image repeat of its header, as DICOM JSON; None if it is not a DICOM.

    The geometry of the frame is there if it is complete.
    """
    from pydicom import Dataset
    from pydicom.datadict import dictionary_description

    with path.open("rb") as file:
        if not dicom.FORMAT.recognise(file.read(132)):
            return None
    data, kept = _header(path), Dataset()
    _choose_characters(data)
    for keyword in (*_IDENTIFIERS, *_DESCRIPTIONS):
        value, name = _text(data, keyword), f"{dictionary_description(keyword)} ({keyword})"
        if not value and keyword in _NEEDED:
            raise DefectError(f"has no {name}, which an object beside it must repeat; add it to its header")
        fault = _fault(keyword, value) if value else None
        if fault and keyword in _IDENTIFIERS:
            raise DefectError(f"has a {name} that {fault}, so it cannot be repeated unchanged; correct its header")
        if value and not fault:
            setattr(kept, keyword, value)
    frames = dicom.num_frames(data)
    index = pick_frame(frame, frames)
    kept.Rows, kept.Columns = int(data.Rows), int(data.Columns)
    if frames > 1:
        kept.NumberOfFrames = frames
    geometry = _geometry(data, index, frames) if "FrameOfReferenceUID" in kept else {}
    for keyword, numbers in geometry.items():
        setattr(kept, keyword, numbers if len(numbers) > 1 else numbers[0])
    return str(kept.to_json())


def _choose_characters(data: Any) -> None:
    """Read the texts of a file without a character set as UTF-8 if possible, else as Latin-1."""
    if data.get("SpecificCharacterSet"):
        return
    raw = [data.get_item(keyword).value for keyword in (*_IDENTIFIERS, *_DESCRIPTIONS) if keyword in data]
    with suppress(UnicodeDecodeError):
        b"\n".join(value for value in raw if isinstance(value, bytes)).decode("utf-8")
        data.set_original_encoding(*data.original_encoding, "utf8")


def _text(data: Any, keyword: str) -> str:
    """The value as text, blank if it is missing or no text."""
    if keyword not in data:
        return ""
    element = data[keyword]
    if element.VR == "SQ" or element.value is None or isinstance(element.value, bytes):
        return ""
    several = isinstance(element.value, list) or element.VM > 1
    return "\\".join(map(str, element.value)).strip() if several else str(element.value).strip()


def _fault(keyword: str, value: str) -> str | None:
    from pydicom import config
    from pydicom.datadict import dictionary_VR
    from pydicom.valuerep import validate_value

    faults = {
        "is not written in its character set": "\ufffd" in value,  # in place of bytes that are no character
        "has control characters": not value.isprintable(),
        "has several values": "\\" in value,
        "is none of the values that DICOM knows": value not in _CHOICES.get(keyword, (value,)),
    }
    try:
        validate_value(dictionary_VR(keyword), value, config.RAISE)
    except ValueError:
        faults["is not what DICOM allows"] = True
    return next((fault for fault, is_there in faults.items() if is_there), None)


def _geometry(data: Any, index: int, frames: int) -> dict[str, list[float]]:
    """The numbers that place a frame in the patient, empty unless they are complete and valid."""
    found = {}
    for keyword, (sequence, count) in _GEOMETRY.items():
        places = [item for groups in dicom.frame_groups(data, index) for item in (groups.get(sequence) or [])[:1]]
        places += [data] if frames == 1 else []
        numbers = next((_numbers(place, keyword) for place in places if keyword in place), [])
        if len(numbers) != count:
            return {}
        found[keyword] = numbers
    axes = np.reshape(found["ImageOrientationPatient"], (2, 3))
    orthonormal = np.allclose(axes @ axes.T, np.eye(2), atol=_TOLERANCE)
    sizes = [*found["PixelSpacing"], *found["SliceThickness"]]
    return found if orthonormal and min(sizes) > 0 else {}


def _numbers(place: Any, keyword: str) -> list[float]:
    """The numbers of an attribute, none unless all are finite."""
    try:
        numbers = np.atleast_1d(np.asarray(place[keyword].value, dtype=float))
    except (KeyError, TypeError, ValueError):  # no numbers, or a sequence of data sets
        return []
    return numbers.tolist() if np.isfinite(numbers).all() else []
