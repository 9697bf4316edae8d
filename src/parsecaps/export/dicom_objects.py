"""The DICOM objects of an explanation: a structured report, a picture, and parametric maps.

Classes and concepts have names, and a name is no definition: whether the "melanoma" of a table is that of SNOMED CT is
not ours to say. So they get codes of the private scheme 99PARSECAPS, whose meaning is the name. The code is a letter
and twelve digits of the SHA-256 of the name: the same name has the same code in every model.
"""

import hashlib
from collections.abc import Sequence
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

from parsecaps import __version__
from parsecaps.data.preparation import Preparation
from parsecaps.explain.explanation import Explanation, SeenConcept
from parsecaps.export.dicom_source import NAME, WARNING, Device, DicomSource, new_uid
from parsecaps.report.montage import draw_montage

SCHEME = "99PARSECAPS"
_MEANING, _LABEL, _TEXT = 64, 16, 1024  # bytes, at most, of a code's meaning, a map's label and a text
_DIGITS = 6  # of a number in the report, after the point
_COPIED = ("BurnedInAnnotation", "RecognizableVisualFeatures")  # the source's pixels are in the picture


def make_report(explanation: Explanation, source: DicomSource, device: Device, place: dict[str, Any]) -> Any:
    """The report of one image; `place` has its UIDs and numbers.

    The first group has the diagnosis as a finding, with its probability and those of the other classes; then each
    concept has a group that says whether it was detected, and how present it is.
    """
    groups = [_diagnosis(explanation, source, device)]
    groups += [_concept(each, explanation, source, device) for each in explanation.concepts]
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


def _diagnosis(explanation: Explanation, source: DicomSource, device: Device) -> Any:
    diagnosis = explanation.diagnosis
    named = [(codes.DCM.Probability, explanation.probability)]
    named += [
        (named_code("P", n, "Probability of {}"), p) for n, p in explanation.probabilities.items() if n != diagnosis
    ]
    possible = coded("possible", "Class that cannot be ruled out")
    return _group(
        "diagnosis",
        source,
        _algorithm(explanation, device),
        measurements=[sr.Measurement(name, round(value, _DIGITS), codes.UCUM.NoUnits) for name, value in named],
        evaluations=[sr.QualitativeEvaluation(possible, named_code("D", n)) for n in explanation.possible or []],
        finding=named_code("D", diagnosis),
        comments=_comments(explanation),
    )


def _concept(concept: SeenConcept, explanation: Explanation, source: DicomSource, device: Device) -> Any:
    present = coded("presence", "Presence, 0 to 1 (length of the concept capsule)")
    presence = sr.Measurement(present, round(concept.presence, _DIGITS), codes.UCUM.NoUnits)
    detected = ("260373001", "SCT", "Detected") if concept.seen else ("260415000", "SCT", "Not detected")
    return _group(
        shortened(f"concept: {concept.name}", _TEXT),
        source,
        _algorithm(explanation, device),
        measurements=[presence],
        evaluations=[sr.QualitativeEvaluation(named_code("C", concept.name), sr.CodedConcept(*detected))],
    )


def _group(
    name: str,
    source: DicomSource,
    algorithm: Any,
    *,
    measurements: Sequence[Any],
    evaluations: Sequence[Any],
    finding: Any = None,
    comments: Sequence[str] = (),
) -> Any:
    """A group of TID 1501 about the image."""
    plain, frames = source.stand_in, None if source.frame is None else [source.frame + 1]
    group = sr.MeasurementsAndQualitativeEvaluations(
        tracking_identifier=sr.TrackingIdentifier(uid=new_uid(), identifier=name),
        finding_type=finding,
        algorithm_id=algorithm,
        measurements=measurements,
        qualitative_evaluations=list(evaluations) or None,
        source_images=[sr.SourceImageForMeasurementGroup(plain.SOPClassUID, plain.SOPInstanceUID, frames)],
    )
    contains = sr.RelationshipTypeValues.CONTAINS
    group[0].ContentSequence.extend([sr.TextContentItem(codes.DCM.Comment, text, contains) for text in comments])
    return group


def _algorithm(explanation: Explanation, device: Device) -> Any:
    """TID 4019: the program, its version, and what it was asked to do."""
    network = "strict network" if explanation.strict is not None else "ordinary network"
    return sr.AlgorithmIdentification(
        name=NAME,
        version=__version__,
        parameters=[f"model {device.kind}, {network}", f"weights {device.digest}", f"maps by {explanation.method}"],
        family=codes.DCM.ArtificialIntelligence,
        manufacturer=NAME,
    )


def _comments(explanation: Explanation) -> list[str]:
    """What a reader must know before the numbers."""
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
    picture = np.asarray(draw_montage(explanation, footer, source.numbers))
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


def code_value(letter: str, name: str) -> str:
    """The value of a code of our own, at most 16 characters.

    >>> code_value("C", "blue-whitish veil")
    'C-2abb99a18830'
    """
    return f"{letter}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


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
    """
    return coded(code_value(letter, name), meaning.format(name))


def scheme_item() -> Any:
    """What says in an object whose codes these are."""
    return CodingSchemeIdentificationItem(
        designator=SCHEME,
        name="Names of classes and concepts of parsecaps models",
        responsible_organization="parsecaps",
    )
