"""An explanation as a DICOM structured report: Comprehensive SR with TID 1500, Measurement Report."""

from collections.abc import Sequence
from typing import Any

from parsecaps import __version__
from parsecaps.explain.explanation import Explanation, SeenConcept
from parsecaps.export.dicom_codes import (
    class_code,
    class_probability_code,
    concept_code,
    detected_code,
    possible_code,
    presence_code,
    scheme_item,
    shortened,
)
from parsecaps.export.dicom_source import NAME, WARNING, Device, DicomSource, new_uid

DESCRIPTION = "parsecaps report (research, unverified)"
_LONGEST = 1024  # bytes of a text
_DIGITS = 6  # of a number in the report, after the point


def make_report(explanation: Explanation, source: DicomSource, device: Device, place: dict[str, Any]) -> Any:
    """The report of one image; `place` has its UIDs and numbers.

    The first group has the diagnosis as a finding, with its probability and those of the other classes; then each
    concept has a group that says whether it was detected, and how present it is.
    """
    from highdicom import sr
    from pydicom.sr.codedict import codes

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
        series_description=DESCRIPTION,
        coding_schemes=[scheme_item()],
        **device.attributes(),
        **place,
    )
    report.CompletionFlagDescription = "All that the model says; seen by no person"
    return report


def _diagnosis(explanation: Explanation, source: DicomSource, device: Device) -> Any:
    from highdicom import sr
    from pydicom.sr.codedict import codes

    diagnosis = explanation.diagnosis
    named = [(codes.DCM.Probability, explanation.probability)]
    named += [(class_probability_code(n), p) for n, p in explanation.probabilities.items() if n != diagnosis]
    return _group(
        "diagnosis",
        source,
        _algorithm(explanation, device),
        measurements=[sr.Measurement(name, round(value, _DIGITS), codes.UCUM.NoUnits) for name, value in named],
        evaluations=[sr.QualitativeEvaluation(possible_code(), class_code(n)) for n in explanation.possible or []],
        finding=class_code(diagnosis),
        comments=_comments(explanation),
    )


def _concept(concept: SeenConcept, explanation: Explanation, source: DicomSource, device: Device) -> Any:
    from highdicom import sr
    from pydicom.sr.codedict import codes

    presence = sr.Measurement(presence_code(), round(concept.presence, _DIGITS), codes.UCUM.NoUnits)
    return _group(
        shortened(f"concept: {concept.name}", _LONGEST),
        source,
        _algorithm(explanation, device),
        measurements=[presence],
        evaluations=[sr.QualitativeEvaluation(concept_code(concept.name), detected_code(concept.seen))],
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
    from highdicom import sr
    from pydicom.sr.codedict import codes

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
    from highdicom import sr
    from pydicom.sr.codedict import codes

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
    return [shortened(text, _LONGEST) for text in (*found, *explanation.strict_lines)]
