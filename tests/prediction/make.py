"""Answers of a bundle alone."""

from pathlib import Path

from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import Prediction, predict_files


def predict_one(model: Model, path: str | Path, frame: int | None = None, risk: float | None = None) -> Prediction:
    """What a bundle says of one image file."""
    (found,) = predict_files(model, [ImageFile(Path(path), frame)], risk=risk)
    return found
