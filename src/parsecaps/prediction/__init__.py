"""The one way from files or cases to probabilities, with the stored temperature and conformal sets."""

from parsecaps.prediction.files import ImageFile, LeftOut, find_files
from parsecaps.prediction.predict import Prediction, predict_cases, predict_files, predict_images

__all__ = ["ImageFile", "LeftOut", "Prediction", "find_files", "predict_cases", "predict_files", "predict_images"]
