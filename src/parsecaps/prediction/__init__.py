"""The one way from files or cases to probabilities, with the stored temperature and conformal sets."""

from parsecaps.metrics.predictions import Predictions
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.calibration import Calibration
from parsecaps.prediction.files import ImageFile, LeftOut, find_files
from parsecaps.prediction.predict import Prediction, predict_cases, predict_files, predict_images

__all__ = [
    "Bundle",
    "Calibration",
    "ImageFile",
    "LeftOut",
    "Prediction",
    "Predictions",
    "find_files",
    "predict_cases",
    "predict_files",
    "predict_images",
]
