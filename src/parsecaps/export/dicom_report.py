"""Explanations as DICOM objects beside the study: a report, a picture and, where there is a geometry, maps.

Classes and concepts have names, and a name is no definition: whether the "melanoma" of a table is that of SNOMED CT is
not ours to say. So they get codes of the private scheme 99PARSECAPS, whose meaning is the name. The code is a letter
and twelve digits of the SHA-256 of the name: the same name has the same code in every model.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from warnings import catch_warnings

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
from parsecaps.data.deidentify import read_dicom_header
from parsecaps.data.preparation import Preparation
from parsecaps.explain.explanation import Explanation
from parsecaps.files.writing import make_private_folder, plain_name, remove_empty, write_binary
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
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
_LARGEST_SERIES, _OTHER_SERIES = 10**6, 9  # a series of ours is numbered after the source's, or where that is odd, 9
_LONGEST_NAME = 40
_MOST_PIXELS = 2**24  # of a map; highdicom holds several copies of it in memory
_quiet = Lock()


@dataclass(frozen=True)
class DicomSource:
    """A DICOM image, or a frame of one, by what its header says (`data.deidentify`); `frame` counts from 0."""

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
    def size(self) -> tuple[int, int]:
        return int(self.header.Rows), int(self.header.Columns)

    def name_frame(self, reference: Any) -> None:
        """Name the frame in a reference to the source, if the source has several."""
        if self.frame is not None:
            reference.ReferencedFrameNumber = self.frame + 1

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
        is_known = self.header.get("LossyImageCompression") == "01" and all(each in self.header for each in found)
        return found if is_known else ()

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


@dataclass(frozen=True)
class DicomWritten:
    """How many objects of each kind were written, and a line for each image that none was written for."""

    counts: Counter[str]
    errors: list[str]

    def __str__(self) -> str:
        numbers = ((kind, self.counts[kind]) for kind in ("report", "picture", "map"))
        return "{}, {} and {}".format(*(f"{number:,} {kind}{'s' * (number != 1)}" for kind, number in numbers))


@contextmanager
def dicom_folder(folder: Path) -> Iterator[None]:
    """Make the folder that objects go to, and refuse what would end the work only after it.

    In the end it is removed again if nothing was written to it.
    """
    made = make_private_folder(folder)
    try:
        yield
    finally:
        remove_empty(made)


def write_dicom(model: Model, explanations: Sequence[Explanation], folder: Path) -> DicomWritten:
    """Write the objects of each image that came from a DICOM file into a folder; no file there is ever replaced.

    An image of another format, or one whose header lacks what an object must repeat, costs a line. Without any object
    in the end it is a ValueError, and the folder is not there if it was not before.
    """
    kind, digest, series = type(model.network).__name__, weights_digest(model.network), _Series()
    counts, errors = Counter[str](), list[str]()
    with dicom_folder(folder):
        for number, explanation in enumerate(explanations, 1):
            try:
                source = None if explanation.source is None else DicomSource.read(explanation.source)
                if source is None:
                    raise ValueError(f"{explanation.name} is not a DICOM file, so no DICOM object was written for it")
            except (OSError, ValueError) as error:
                errors.append(str(error))
                continue
            pixels = source.size[0] * source.size[1]
            with_maps = source.has_geometry and pixels <= _MOST_PIXELS
            if source.has_geometry and not with_maps:
                errors.append(f"{explanation.name} has {pixels:,} pixels, too many for parametric maps of it")
            name = f"{number:03d}-{plain_name(explanation.name)[:_LONGEST_NAME]}"
            objects = _Objects(kind, digest, model.preparation, explanation, source, series)
            with _quiet, catch_warnings(action="ignore"):  # one thread at a time: the filters are those of all threads
                for what, item in objects.made(with_maps):
                    source.complete(item)
                    with write_binary(folder / f"{name}-{what}-{item.SOPInstanceUID}.dcm") as file:
                        item.save_as(file, enforce_file_format=True)
                    counts[what] += 1
        if not counts:
            raise ValueError(errors[0])
    return DicomWritten(counts, errors)


class _Series:
    """The new series per source series: one of reports, one of pictures, and one for each kind of map."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], tuple[str, int, Iterator[int]]] = {}

    def place(self, kind: str, source: DicomSource, title: str) -> dict[str, Any]:
        """UIDs and numbers for the next object; `title` is what maps of one series are of."""
        names = ("PatientID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
        origin = tuple(str(source.header.get(name, "")) for name in names)
        if (*origin, kind, title) not in self._known:
            number = int(source.header.get("SeriesNumber") or 0)
            base = number if 0 < number < _LARGEST_SERIES else _OTHER_SERIES
            before = sum(each[:4] == origin for each in self._known)
            self._known[*origin, kind, title] = (generate_uid(prefix=None), base * 1000 + before + 1, count(1))
        uid, number, instances = self._known[*origin, kind, title]
        return {
            "series_instance_uid": uid,
            "series_number": number,
            "sop_instance_uid": generate_uid(prefix=None),
            "instance_number": next(instances),
        }


@dataclass(frozen=True)
class _Objects:
    """The objects of one image; the device that makes the observations is the program with its model."""

    kind: str
    digest: str
    preparation: Preparation
    explanation: Explanation
    source: DicomSource
    series: _Series

    def made(self, with_maps: bool) -> Iterator[tuple[str, Any]]:
        """A report, a picture and, if asked for, a map of each seen; one by one, for maps can be large."""
        yield "report", self.report()
        yield "picture", self.picture()
        if with_maps:
            yield "map", self.map("class", self.explanation.diagnosis, self.explanation.class_map)
            for each in self.explanation.concepts:
                if each.seen:
                    yield "map", self.map("concept", each.name, each.map)

    def attributes(self, kind: str, description: str, title: str = "") -> dict[str, Any]:
        """What every object says of the device, and its place among the new series."""
        return {
            "manufacturer": NAME,
            "manufacturer_model_name": f"{NAME} {self.kind}",
            "software_versions": __version__,
            "device_serial_number": self.digest,
            "content_qualification": "RESEARCH",
            "series_description": description,
            **self.series.place(kind, self.source, title),
        }

    def report(self) -> Any:
        """A structured report.

        The first group has the diagnosis as a finding, with its probability and those of the other classes; then each
        concept has a group that says whether it was detected, and how present it is.
        """
        said = self.explanation
        probabilities = [(codes.DCM.Probability, said.probability)]
        for name, value in said.probabilities.items():
            if name != said.diagnosis:
                probabilities.append((named_code("P", name, "Probability of {}"), value))
        possible = coded("possible", "Class that cannot be ruled out")
        doubts = [sr.QualitativeEvaluation(possible, named_code("D", name)) for name in said.possible or []]
        groups = [self._group("diagnosis", probabilities, doubts, named_code("D", said.diagnosis))]
        contains = sr.RelationshipTypeValues.CONTAINS
        for text in _comments(said):
            comment = sr.TextContentItem(codes.DCM.Comment, shortened(text, _TEXT), contains)
            groups[0][0].ContentSequence.append(comment)
        present = coded("presence", "Presence, 0 to 1 (length of the concept capsule)")
        for each in said.concepts:
            detected = ("260373001", "SCT", "Detected") if each.seen else ("260415000", "SCT", "Not detected")
            seen = sr.QualitativeEvaluation(named_code("C", each.name), CodedConcept(*detected))
            groups.append(self._group(shortened(f"concept: {each.name}", _TEXT), [(present, each.presence)], [seen]))
        weights = uuid.uuid5(uuid.NAMESPACE_URL, f"{NAME}:{__version__}:{self.digest}")  # the same for the same weights
        observer = sr.ObserverContext(
            observer_type=codes.DCM.Device,
            observer_identifying_attributes=sr.DeviceObserverIdentifyingAttributes(
                uid=f"2.25.{weights.int}",
                name=NAME,
                manufacturer_name=NAME,
                model_name=f"{NAME} {self.kind} {__version__}",
                serial_number=self.digest,
            ),
        )
        content = sr.MeasurementReport(
            observation_context=sr.ObservationContext(observer_device_context=observer),
            procedure_reported=codes.SCT.ImagingProcedure,
            imaging_measurements=groups,
            title=codes.DCM.ImagingMeasurementReport,
        )
        report = sr.ComprehensiveSR(
            evidence=[self.source.stand_in],
            content=content,
            is_complete=True,  # all that the model says; nobody has looked at it
            is_final=False,
            is_verified=False,
            coding_schemes=[scheme_item()],
            **self.attributes("report", "parsecaps report (research, unverified)"),
        )
        report.CompletionFlagDescription = "All that the model says; seen by no person"
        return report

    def _group(self, title: str, numbers: Sequence[tuple[Any, float]], doubts: list[Any], finding: Any = None) -> Any:
        """TID 1501: measurements about the image by our algorithm (TID 4019), with the diagnosis if it is a finding."""
        plain, network = self.source.stand_in, "ordinary" if self.explanation.strict is None else "strict"
        model, maps = f"model {self.kind}, {network} network", f"maps by {self.explanation.method}"
        parameters, family = [model, f"weights {self.digest}", maps], codes.DCM.ArtificialIntelligence
        algorithm = sr.AlgorithmIdentification(NAME, __version__, parameters, family, manufacturer=NAME)
        frames = None if self.source.frame is None else [self.source.frame + 1]
        image = sr.SourceImageForMeasurementGroup(plain.SOPClassUID, plain.SOPInstanceUID, frames)
        return sr.MeasurementsAndQualitativeEvaluations(
            tracking_identifier=sr.TrackingIdentifier(uid=generate_uid(prefix=None), identifier=title),
            finding_type=finding,
            algorithm_id=algorithm,
            measurements=[sr.Measurement(code, round(value, _DIGITS), codes.UCUM.NoUnits) for code, value in numbers],
            qualitative_evaluations=doubts or None,
            source_images=[image],
        )

    def picture(self) -> Any:
        """A secondary capture of the image and its maps."""
        source, explanation = self.source, self.explanation
        frame = None if source.frame is None else source.frame + 1
        numbers = (source.header.get("SeriesNumber"), source.header.get("InstanceNumber"), frame)
        named = zip(("series", "image", "frame"), numbers, strict=True)
        position = ", ".join(f"{name} {number}" for name, number in named if number is not None)
        footer = f"{WARNING}. {NAME} {__version__}, {self.kind} {self.digest}"
        capture = SCImage.from_ref_dataset(
            ref_dataset=source.stand_in,
            pixel_array=np.asarray(draw_montage(explanation, footer, position)),
            photometric_interpretation="RGB",
            bits_allocated=8,
            coordinate_system="PATIENT",
            patient_orientation=("L", "P"),
            **self.attributes("picture", "parsecaps pictures (research, unverified)"),
        )
        capture.PatientOrientation = []  # several pictures and text have none
        capture.ConversionType = "WSD"
        capture.ImageComments = f"{WARNING}. Maps show where the evidence of a model came from."
        capture.DerivationDescription = f"Image as the model saw it, with maps by {explanation.method}, and captions"
        reference = Dataset()
        reference.ReferencedSOPClassUID = source.stand_in.SOPClassUID
        reference.ReferencedSOPInstanceUID = source.stand_in.SOPInstanceUID
        purpose = CodedConcept.from_code(codes.DCM.SourceImageForImageProcessingOperation)
        reference.PurposeOfReferenceCodeSequence = [purpose]
        source.name_frame(reference)
        capture.SourceImageSequence = [reference]
        for keyword in (*_COPIED, *source.lossy):
            if keyword in source.header:
                capture[keyword] = source.header[keyword]
        return capture

    def map(self, kind: str, name: str, found: np.ndarray) -> Any:
        """The map (size, size) of a class or a concept as one frame of 32-bit numbers, 1 where it is highest.

        Each has an object of its own, because viewers expect one quantity in an object.
        """
        levels = torch.from_numpy(np.ascontiguousarray(found, dtype=np.float32))
        values = torch.nan_to_num(self.preparation.to_original(levels, self.source.size)).clamp(min=0)
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
            source_images=[self.source.stand_in],
            pixel_array=(values / (values.max() if values.max() > 0 else 1)).numpy(),
            real_world_value_mappings=[mapping],
            voi_lut_transformations=[VOILUTTransformation(window_center=0.5, window_width=1.0)],
            contains_recognizable_visual_features=False,
            content_label="EVIDENCE",
            content_description=WARNING,
            coding_schemes=[scheme_item()],
            **self.attributes("map", shortened(f"parsecaps (research, unverified): {name}"), f"{kind} {name}"),
        )
        for measures in made.SharedFunctionalGroupsSequence[0].PixelMeasuresSequence:
            if "SpacingBetweenSlices" in measures:
                del measures.SpacingBetweenSlices  # highdicom says 1 mm; of one plane it is not known
        for group in made.PerFrameFunctionalGroupsSequence:
            for derivation in group.DerivationImageSequence:
                self.source.name_frame(derivation.SourceImageSequence[0])
        return made


def _comments(explanation: Explanation) -> Iterator[str]:
    yield f"{WARNING}. Made by a model and verified by no person."
    if explanation.abstain:
        yield f"The model abstains: {' or '.join(explanation.possible or []) or 'no class'} cannot be ruled out."
    if explanation.reasons is None and explanation.concepts:
        yield "The concepts stand beside the diagnosis; they need not be its reasons."
    yield from explanation.strict_lines


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
