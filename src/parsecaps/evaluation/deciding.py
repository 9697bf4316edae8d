"""From logits to an answer that knows its limits: the temperature and the threshold that validation patients set."""

from pathlib import Path

from parsecaps.evaluation.archive import Decision
from parsecaps.evaluation.calibration import fit_temperature
from parsecaps.evaluation.conformal import calibrate
from parsecaps.evaluation.predictions import Predictions

CALIBRATION_FILE = "calibration.npz"


def load_decision(folder: Path, risk: float | None) -> tuple[Decision, list[str]]:
    """How the model of a folder decides at a risk, and what to say about it.

    The folder keeps what the model said of its validation patients; without that, probabilities are as they come, and a
    risk cannot be promised.
    """
    path = folder / CALIBRATION_FILE
    if not path.is_file():
        if risk is not None:
            raise ValueError(
                f"{path} is missing, so no risk can be promised; leave out --risk, or train with validation"
            )
        return Decision(), ["the probabilities are not calibrated: the model was saved without validation"]
    return decide(Predictions.load(path), risk)


def decide(validation: Predictions, risk: float | None) -> tuple[Decision, list[str]]:
    """The temperature that fits the validation cases best, and the threshold that keeps the risk."""
    fitted = fit_temperature(validation.logits, validation.label)
    notes = [fitted.note] if fitted.note else []
    if risk is None:
        return Decision(fitted.temperature), notes
    probabilities = validation.probabilities(fitted.temperature)
    threshold = calibrate(probabilities, validation.label, risk, validation.groups())
    notes += [threshold.note] if threshold.note else []
    return Decision(fitted.temperature, threshold.probability), notes
