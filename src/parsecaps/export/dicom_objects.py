"""The DICOM objects of an explanation: a structured report, a picture, and parametric maps, beside the image's own.

Classes and concepts have names, and a name is no definition: whether the "melanoma" of a table is that of SNOMED CT is
not ours to say. So they get codes of the private scheme 99PARSECAPS, whose meaning is the name. The code is a letter
and twelve digits of the SHA-256 of the name: the same name has the same code in every model.
"""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from highdicom import VOILUTTransformation, sr
from highdicom.coding_schemes import CodingSchemeIdentificationItem
from highdicom.pm import ParametricMap, RealWorldValueMapping
from highdicom.sc import SCImage
from highdicom.sr import CodedConcept
from pydicom import Dataset
from pydicom.sr.codedict import codes
from pydicom.uid import SecondaryCaptureImageStorage, generate_uid

from parsecaps import __version__
from parsecaps.data.kept import read_dicom_header
from parsecaps.data.preparation import Preparation
from parsecaps.explain.explanation import Explanation
from parsecaps.prediction.files import ImageFile
from parsecaps.report.montage import draw_montage

NAME = "parsecaps"
WARNING = "Research use only, not a medical device"
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
SCHEME = "99PARSECAPS"
_MEANING, _LABEL, _TEXT = 64, 16, 1024  # bytes, at most, of a code's meaning, a map's label and a text
_DIGITS = 6  # of a number in the report, after the point
_COPIED = ("BurnedInAnnotation", "RecognizableVisualFeatures")  # the source's pixels are in the picture


@dataclass(frozen=True)
class Device:
    """The program with its model, which makes the observations: the kind of model, and its weights in short."""

    kind: str
    digest: str

    @property
    def uid(self) -> str:
        """The same for the same weights in the same version."""
        return f"2.25.{uuid.uuid5(uuid.NAMESPACE_URL, f'{NAME}:{__version__}:{self.digest}').int}"

    def attributes(self) -> dict[str, Any]:
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
        """Whether the position of the pixels in the patient is known."""
        return all(keyword in self.header for keyword in _GEOMETRY)

    @property
    def num_pixels(self) -> int:
        return int(self.header.Rows) * int(self.header.Columns)

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
        """Attributes of a lossy compression, if all are known."""
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
        """Name the frame in a reference to the source, if the source has several."""
        if self.frame is not None:
            reference.ReferencedFrameNumber = self.frame + 1


def make_report(explanation: Explanation, source: DicomSource, device: Device, place: dict[str, Any]) -> Any:
    """The report of one image; `place` has its UIDs and numbers.

    The first group has the diagnosis as a finding, with its probability and those of the other classes; then each
    concept has a group that says whether it was detected, and how present it is.
    """
    probabilities = [(codes.DCM.Probability, explanation.probability)]
    for name, value in explanation.probabilities.items():
        if name != explanation.diagnosis:
            probabilities.append((named_code("P", name, "Probability of {}"), value))
    possible = coded("possible", "Class that cannot be ruled out")
    doubts = [sr.QualitativeEvaluation(possible, named_code("D", name)) for name in explanation.possible or []]
    groups = [_group("diagnosis", explanation, source, device, probabilities, doubts, is_finding=True)]
    present = coded("presence", "Presence, 0 to 1 (length of the concept capsule)")
    for each in explanation.concepts:
        detected = ("260373001", "SCT", "Detected") if each.seen else ("260415000", "SCT", "Not detected")
        seen = sr.QualitativeEvaluation(named_code("C", each.name), sr.CodedConcept(*detected))
        title = shortened(f"concept: {each.name}", _TEXT)
        groups.append(_group(title, explanation, source, device, [(present, each.presence)], [seen]))
    observer = sr.ObserverContext(
        observer_type=codes.DCM.Device,
        observer_identifying_attributes=sr.DeviceObserverIdentifyingAttributes(
            uid=device.uid,
            name=NAME,
            manufacturer_name=NAME,
            model_name=f"{NAME} {device.kind} {__version__}",
            serial_number=device.digest,
        ),
    )
    content = sr.MeasurementReport(
        observation_context=sr.ObservationContext(observer_device_context=observer),
        procedure_reported=codes.SCT.ImagingProcedure,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
    )
    report = sr.ComprehensiveSR(
        evidence=[source.stand_in],
        content=content,
        is_complete=True,  # all that the model says; nobody has looked at it
        is_final=False,
        is_verified=False,
        series_description="parsecaps report (research, unverified)",
        coding_schemes=[scheme_item()],
        **device.attributes(),
        **place,
    )
    report.CompletionFlagDescription = "All that the model says; seen by no person"
    return report


def _group(
    title: str,
    explanation: Explanation,
    source: DicomSource,
    device: Device,
    numbers: Sequence[tuple[Any, float]],
    evaluations: list[Any],
    *,
    is_finding: bool = False,
) -> Any:
    """TID 1501: measurements about the image by our algorithm (TID 4019), with the diagnosis if it is a finding."""
    plain, frames = source.stand_in, None if source.frame is None else [source.frame + 1]
    network = "strict network" if explanation.strict is not None else "ordinary network"
    algorithm = sr.AlgorithmIdentification(
        name=NAME,
        version=__version__,
        parameters=[f"model {device.kind}, {network}", f"weights {device.digest}", f"maps by {explanation.method}"],
        family=codes.DCM.ArtificialIntelligence,
        manufacturer=NAME,
    )
    group = sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=sr.TrackingIdentifier(uid=generate_uid(prefix=None), identifier=title),
        finding_type=named_code("D", explanation.diagnosis) if is_finding else None,
        algorithm_id=algorithm,
        measurements=[sr.Measurement(code, round(value, _DIGITS), codes.UCUM.NoUnits) for code, value in numbers],
        qualitative_evaluations=evaluations or None,
        source_images=[sr.SourceImageForMeasurementGroup(plain.SOPClassUID, plain.SOPInstanceUID, frames)],
    )
    if is_finding:
        contains = sr.RelationshipTypeValues.CONTAINS
        comments = [sr.TextContentItem(codes.DCM.Comment, text, contains) for text in _comments(explanation)]
        group[0].ContentSequence.extend(comments)
    return group


def _comments(explanation: Explanation) -> list[str]:
    found = [f"{WARNING}. Made by a model and verified by no person."]
    if explanation.abstain:
        listed = " or ".join(explanation.possible or []) or "no class"
        found.append(f"The model abstains: {listed} cannot be ruled out.")
    if explanation.reasons is None and explanation.concepts:
        found.append("The concepts stand beside the diagnosis; they need not be its reasons.")
    return [shortened(text, _TEXT) for text in (*found, *explanation.strict_lines)]


def make_capture(explanation: Explanation, source: DicomSource, device: Device, place: dict[str, Any]) -> Any:
    """The picture of one image; `place` has its UIDs and numbers."""
    footer = f"{WARNING}. {NAME} {__version__}, {device.kind} {device.digest}"
    frame = None if source.frame is None else source.frame + 1
    named = {"series": source.header.get("SeriesNumber"), "image": source.header.get("InstanceNumber"), "frame": frame}
    position = ", ".join(f"{name} {number}" for name, number in named.items() if number is not None)
    picture = np.asarray(draw_montage(explanation, footer, position))
    capture = SCImage.from_ref_dataset(
        ref_dataset=source.stand_in,
        pixel_array=picture,
        photometric_interpretation="RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        patient_orientation=("L", "P"),
        series_description="parsecaps pictures (research, unverified)",
        **device.attributes(),
        **place,
    )
    capture.PatientOrientation = []  # several pictures and text have none
    capture.ConversionType = "WSD"
    capture.ImageComments = f"{WARNING}. Maps show where the evidence of a model came from."
    capture.DerivationDescription = f"Image as the model saw it, with maps by {explanation.method}, and captions"
    reference = Dataset()
    reference.ReferencedSOPClassUID = source.stand_in.SOPClassUID
    reference.ReferencedSOPInstanceUID = source.stand_in.SOPInstanceUID
    reference.PurposeOfReferenceCodeSequence = [
        CodedConcept.from_code(codes.DCM.SourceImageForImageProcessingOperation)
    ]
    source.name_frame(reference)
    capture.SourceImageSequence = [reference]
    for keyword in (*_COPIED, *source.lossy):
        if keyword in source.header:
            capture[keyword] = source.header[keyword]
    return capture


def make_map(
    name: str, found: np.ndarray, source: DicomSource, device: Device, preparation: Preparation, place: dict[str, Any]
) -> Any:
    """The map (size, size) of a class or a concept as one frame of 32-bit numbers, 1 where it is highest.

    Each has an object of its own, because viewers expect one quantity in an object. `place` has its UIDs and numbers.
    """
    shape = int(source.header.Rows), int(source.header.Columns)
    values = preparation.to_original(torch.from_numpy(np.ascontiguousarray(found, dtype=np.float32)), shape)
    values = torch.nan_to_num(values).clamp(min=0)
    mapping = RealWorldValueMapping(
        lut_label=shortened(name, _LABEL),
        lut_explanation=shortened(f"Evidence for {name}, 1 at its highest"),
        unit=codes.UCUM.NoUnits,
        value_range=(0.0, 1.0),
        slope=1.0,
        intercept=0.0,
        quantity_definition=named_code("E", name, "Relative evidence for {}"),
    )
    made = ParametricMap(
        source_images=[source.stand_in],
        pixel_array=(values / (values.max() if values.max() > 0 else 1)).numpy(),
        real_world_value_mappings=[mapping],
        voi_lut_transformations=[VOILUTTransformation(window_center=0.5, window_width=1.0)],
        contains_recognizable_visual_features=False,
        content_label="EVIDENCE",
        content_description=WARNING,
        series_description=shortened(f"parsecaps (research, unverified): {name}"),
        coding_schemes=[scheme_item()],
        **device.attributes(),
        **place,
    )
    for measures in made.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence:
        if "SpacingBetweenSlices" in measures:
            del measures.SpacingBetweenSlices  # highdicom says 1 mm; of one plane it is not known
    for group in made.PerFrameFunctionalGroupsSequence:
        for derivation in group.DerivationImageSequence:
            source.name_frame(derivation.SourceImageSequence[0])
    return made


def shortened(text: str, longest: int = _MEANING) -> str:
    r"""A text of at most so many bytes, as some readers count, without what would end a value.

    >>> shortened("pigment \\ network", 13)
    'pigment / ...'
    """
    plain = " ".join(text.replace("\\", "/").split())
    if len(plain.encode()) <= longest:
        return plain
    return plain.encode()[: longest - 3].decode(errors="ignore") + "..."


def coded(value: str, meaning: str) -> Any:
    """A code of our own scheme."""
    return CodedConcept(value, SCHEME, shortened(meaning))


def named_code(letter: str, name: str, meaning: str = "{}") -> Any:
    """The code of a class or concept by its name, or of something about it.

    D is the class as a finding, P its probability, C the concept as something to look for, E what a map shows.

    >>> named_code("C", "blue-whitish veil").value
    'C-2abb99a18830'
    """
    return coded(f"{letter}-{hashlib.sha256(name.encode()).hexdigest()[:12]}", meaning.format(name))


def scheme_item() -> Any:
    """What says in an object whose codes these are."""
    return CodingSchemeIdentificationItem(
        designator=SCHEME,
        name="Names of classes and concepts of parsecaps models",
        responsible_organization="parsecaps",
    )
