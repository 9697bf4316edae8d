"""The one way from files or cases to probabilities, with the stored temperature and conformal sets."""

from parsecaps.metrics.calibration import Calibration
from parsecaps.metrics.predictions import Predictions
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile, LeftOut, find_files
from parsecaps.prediction.predict import Prediction, predict_cases, predict_files, predict_images

__all__ = [
    "Calibration",
    "ImageFile",
    "LeftOut",
    "Model",
    "Prediction",
    "Predictions",
    "find_files",
    "predict_cases",
    "predict_files",
    "predict_images",
]
