"""An explanation as a DICOM secondary capture: the image and its maps in one picture, with captions burned in."""

from typing import Any

import numpy as np

from parsecaps import __version__
from parsecaps.explain.explanation import Explanation
from parsecaps.export.dicom_source import NAME, WARNING, Device, DicomSource
from parsecaps.report.montage import draw_montage

DESCRIPTION = "parsecaps pictures (research, unverified)"
_COPIED = ("BurnedInAnnotation", "RecognizableVisualFeatures")  # the source's pixels are in the picture


def make_capture(explanation: Explanation, source: DicomSource, device: Device, place: dict[str, Any]) -> Any:
    """The picture of one image; `place` has its UIDs and numbers."""
    from highdicom.sc import SCImage
    from highdicom.sr import CodedConcept
    from pydicom import Dataset
    from pydicom.sr.codedict import codes

    footer = f"{WARNING}. {NAME} {__version__}, {device.kind} {device.digest}"
    picture = np.asarray(draw_montage(explanation, footer, source.numbers))
    capture = SCImage.from_ref_dataset(
        ref_dataset=source.stand_in,
        pixel_array=picture,
        photometric_interpretation="RGB",
        bits_allocated=8,
        coordinate_system="PATIENT",
        patient_orientation=("L", "P"),
        series_description=DESCRIPTION,
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
