"""Writes DICOM images as they come from scanners and cameras, and sloppy ones, for the tests of DICOM objects."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydicom import Dataset
from pydicom.uid import (
    CTImageStorage,
    EnhancedMRImageStorage,
    MultiFrameGrayscaleByteSecondaryCaptureImageStorage,
    VLPhotographicImageStorage,
    generate_uid,
)

from parsecaps.data.sources import open_data
from tests.data.image_files import dicom, write_dicom

STUDY, SERIES, FRAME_OF_REFERENCE = (f"1.2.826.0.1.3680043.2.1125.{i}" for i in (1, 2, 3))


def skin(row: int = 1, size: int = 64) -> NDArray[np.uint8]:
    """A phantom image (size, size, 3)."""
    data = open_data(f"phantom:n=4,size={size}")
    assert data.draw is not None
    return np.moveaxis(data.draw([row])[0], 0, -1)


def grey(row: int = 1, size: int = 64) -> NDArray[np.int16]:
    """The same as grey values of 12 bits."""
    return (skin(row, size).mean(axis=2) * 16).astype(np.int16)


def about(sop_class: str, number: int = 1, **more: Any) -> dict[str, Any]:
    """Attributes of a patient, a study and an image."""
    return {
        "PatientID": "MRN-0042",
        "PatientName": "Doe^Jane",
        "PatientBirthDate": "19600102",
        "PatientSex": "F",
        "StudyInstanceUID": STUDY,
        "StudyID": "7",
        "StudyDate": "20240229",
        "StudyTime": "101500",
        "AccessionNumber": "A-1",
        "ReferringPhysicianName": "Roe^Richard",
        "SeriesInstanceUID": SERIES,
        "SeriesNumber": 4,
        "InstanceNumber": number,
        "SOPClassUID": sop_class,
        "SOPInstanceUID": generate_uid(entropy_srcs=[sop_class, str(number)]),
        **more,
    }


def slice_of_ct(path: Path, number: int = 1, size: tuple[int, int] = (64, 64), **more: Any) -> Path:
    """A CT image with a geometry; the plane is oblique."""
    pixels = grey(number % 4)[: size[0], : size[1]]
    cosine, sine = np.cos(0.3), np.sin(0.3)
    place = {
        "Modality": "CT",
        "ImagePositionPatient": [-120.5, 80.25, -300 + 2.5 * number],
        "ImageOrientationPatient": [round(cosine, 12), 0, round(sine, 12), 0, 1, 0],
        "PixelSpacing": [0.75, 0.5],
        "SliceThickness": 2.5,
        "FrameOfReferenceUID": FRAME_OF_REFERENCE,
        "PositionReferenceIndicator": "",
        "RescaleSlope": 1,
        "RescaleIntercept": -1024,
        "WindowCenter": 1000,
        "WindowWidth": 4000,
    }
    return write_dicom(path, pixels, **{**about(CTImageStorage, number, **place), **more})


def photograph(path: Path, **more: Any) -> Path:
    """A dermoscopic photograph in colour."""
    return write_dicom(path, skin(2), **{**about(VLPhotographicImageStorage, 1, Modality="XC"), **more})


def frames_without_place(path: Path, **more: Any) -> Path:
    """Two grey frames of secondary capture."""
    pixels = np.stack([grey(i) // 16 for i in (1, 2)]).astype(np.uint8)
    attributes = about(MultiFrameGrayscaleByteSecondaryCaptureImageStorage, 1, Modality="OT")
    return write_dicom(path, pixels, frames=2, **{**attributes, **more})


def enhanced_mr(path: Path, frames: int = 3, **more: Any) -> Path:
    """Frames with the geometry in functional groups, shared and of each frame."""
    pixels = np.stack([grey(i % 4) for i in range(frames)]).astype(np.uint16)
    data = dicom(pixels, frames=frames, **about(EnhancedMRImageStorage, 1, Modality="MR", **more))
    data.FrameOfReferenceUID = FRAME_OF_REFERENCE
    shared = Dataset()
    shared.PlaneOrientationSequence = [_item(ImageOrientationPatient=[1, 0, 0, 0, 0, -1])]
    shared.PixelMeasuresSequence = [_item(PixelSpacing=[0.9, 0.9], SliceThickness=3)]
    data.SharedFunctionalGroupsSequence = [shared]
    data.PerFrameFunctionalGroupsSequence = [
        _item(PlanePositionSequence=[_item(ImagePositionPatient=[-10, 4.0 * i, 20])]) for i in range(frames)
    ]
    data.save_as(path, enforce_file_format=True)
    return path


def _item(**attributes: Any) -> Dataset:
    item = Dataset()
    for keyword, value in attributes.items():
        setattr(item, keyword, value)
    return item
