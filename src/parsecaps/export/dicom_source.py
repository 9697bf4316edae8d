"""The DICOM image that new objects are about, and what every one of them has: patient, study, device, references."""

import uuid
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pydicom import Dataset
from pydicom.uid import SecondaryCaptureImageStorage

from parsecaps import __version__
from parsecaps.data.kept import read_dicom_header
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.prediction.files import ImageFile

NAME = "parsecaps"
WARNING = "Research use only, not a medical device"
_UUID_ROOT = "2.25"  # PS3.5 B.2: a UID that is a UUID
# what stays as it is: attributes of the patient and of the study
_UNCHANGED = (
    *("PatientID", "PatientName", "IssuerOfPatientID", "PatientBirthDate", "PatientSex"),
    *("PatientAge", "PatientSize", "PatientWeight"),
    *("StudyInstanceUID", "StudyID", "AccessionNumber", "StudyDate", "StudyTime", "StudyDescription"),
    "ReferringPhysicianName",
)
_MAY_BE_BLANK = (  # type 2: there, but perhaps without a value
    *("PatientName", "PatientBirthDate", "PatientSex"),
    *("StudyID", "AccessionNumber", "StudyDate", "StudyTime", "ReferringPhysicianName"),
)
_GEOMETRY = ("ImagePositionPatient", "ImageOrientationPatient", "PixelSpacing", "SliceThickness")
_TEXTS = {"LO", "LT", "PN", "SH", "ST", "UC", "UT"}


def new_uid() -> str:
    """A UID that nobody has yet."""
    return f"{_UUID_ROOT}.{uuid.uuid4().int}"


@dataclass(frozen=True)
class Device:
    """The program with its model, which makes the observations: the kind of model, and its weights in short."""

    kind: str
    digest: str

    @classmethod
    def of(cls, model: Model) -> "Device":
        """The device that a model is."""
        return cls(type(model.network).__name__, weights_digest(model.network))

    @property
    def uid(self) -> str:
        """The same for the same weights in the same version."""
        return f"{_UUID_ROOT}.{uuid.uuid5(uuid.NAMESPACE_URL, f'{NAME}:{__version__}:{self.digest}').int}"

    def attributes(self) -> dict[str, Any]:
        """As highdicom takes them."""
        return {
            "manufacturer": NAME,
            "manufacturer_model_name": f"{NAME} {self.kind}",
            "software_versions": __version__,
            "device_serial_number": self.digest,
            "content_qualification": "RESEARCH",
        }


@dataclass(frozen=True)
class DicomSource:
    """A DICOM image, or a frame of one, by what its header says (`data.kept`); `frame` counts from 0."""

    header: Any
    frame: int | None

    @classmethod
    def read(cls, image: ImageFile) -> "DicomSource | None":
        """The image in a file; None where it is not a DICOM, ValueError where its header lacks what is needed."""
        text = read_dicom_header(image.path, image.frame)
        if text is None:
            return None
        source = cls(Dataset.from_json(text), image.frame)
        if source.header.get("Manufacturer") == NAME:
            raise ValueError(f"{image.path} was written by {NAME} itself; give the image that it is about")
        return source

    @property
    def has_geometry(self) -> bool:
        """Whether it is known where the pixels lie in the patient."""
        return all(keyword in self.header for keyword in _GEOMETRY)

    @property
    def num_pixels(self) -> int:
        """Of a frame."""
        return int(self.header.Rows) * int(self.header.Columns)

    @property
    def numbers(self) -> str:
        """Which image of the study it is, in words, as far as it says."""
        named = [("series", self.header.get("SeriesNumber")), ("image", self.header.get("InstanceNumber"))]
        named.append(("frame", None if self.frame is None else self.frame + 1))
        return ", ".join(f"{name} {number}" for name, number in named if number is not None)

    @cached_property
    def stand_in(self) -> Any:
        """What highdicom is told of the source: a single frame of a plain class, without a patient.

        It would refuse frames of some classes, classes that it does not know, and names and dates that are only
        unusual. `complete` then says the truth.
        """
        plain = Dataset()
        for keyword in ("PatientID", *_MAY_BE_BLANK):
            setattr(plain, keyword, None)
        for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID", "Rows", "Columns"):
            setattr(plain, keyword, self.header[keyword].value)
        plain.SOPClassUID = SecondaryCaptureImageStorage
        for keyword in (*_GEOMETRY, "FrameOfReferenceUID", "PositionReferenceIndicator", *self.lossy):
            if self.has_geometry and keyword in self.header:
                setattr(plain, keyword, self.header[keyword].value)
        return plain

    @property
    def lossy(self) -> tuple[str, ...]:
        """Attributes of a compression that lost something, where all are known."""
        found = ("LossyImageCompression", "LossyImageCompressionRatio", "LossyImageCompressionMethod")
        is_lossy = self.header.get("LossyImageCompression") == "01"
        return found if is_lossy and all(each in self.header for each in found) else ()

    def complete(self, made: Any) -> None:
        """Give an object the patient and the study of the source, and let its references name the source's own class.

        The texts of an object that is not plain ASCII are in UTF-8.
        """
        for keyword in _UNCHANGED:
            if keyword in self.header:
                made[keyword] = self.header[keyword]
            elif keyword in _MAY_BE_BLANK:
                setattr(made, keyword, None)
        if made.Modality != "SR":
            made.Laterality = self.header.get("Laterality") or self.header.get("ImageLaterality")
        for element in made.iterall():
            for item in element.value if element.VR == "SQ" else ():
                if item.get("ReferencedSOPInstanceUID") == self.header.SOPInstanceUID:
                    item.ReferencedSOPClassUID = self.header.SOPClassUID
        made.SpecificCharacterSet = "ISO_IR 192"
        if all(str(each.value).isascii() for each in made.iterall() if each.VR in _TEXTS):
            del made.SpecificCharacterSet

    def name_frame(self, reference: Any) -> None:
        """Let a reference to the source name the frame, where the source has several."""
        if self.frame is not None:
            reference.ReferencedFrameNumber = self.frame + 1
