"""Answers of a bundle alone."""

from pathlib import Path

from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import Prediction, predict_files


def predict_one(bundle: Bundle, path: str | Path, frame: int | None = None, risk: float | None = None) -> Prediction:
    """What a bundle says of one image file."""
    (found,) = predict_files(bundle, [ImageFile(Path(path), frame)], risk=risk)
    return found
