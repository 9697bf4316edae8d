"""What validation patients teach about a trained model: its temperature, and how sure it must be to rule a class out.

Both are fitted once, after training, on the same patients, and kept beside the weights in `calibration.json`. The file
has numbers alone: no name, no patient.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from parsecaps.files.untrusted import checked, read_document, shown
from parsecaps.files.writing import write_atomically
from parsecaps.metrics.predictions import Predictions
from parsecaps.prediction.conformal import ConformalQuantiles, ConformalThreshold

CALIBRATION_FILE = "calibration.json"
VALIDATION_FILE = "calibration.npz"  # of models saved by version 0.1: what they said of their validation cases
TEMPERATURES = (0.05, 20.0)  # the lowest and the highest that a fit may give
_AGAIN = "restore the file as it was saved"
_NOT_CALIBRATED = "the probabilities are not calibrated: the model was saved without validation"


class TemperatureFit(NamedTuple):
    """A temperature to divide logits by, from `n` cases, and the mean NLL without and with it.

    `note` says why the temperature is not what was asked for, where it is not.
    """

    temperature: float
    n: int
    nll_before: float | None
    nll_after: float | None
    note: str | None = None


@dataclass(frozen=True)
class Calibration:
    """The temperature of a model's logits, and the conformal quantiles of its probabilities at that temperature.

    Without validation cases the temperature is 1, there are no `quantiles`, and no risk can be promised. `note` says
    what to know about the temperature.
    """

    temperature: float = 1.0
    quantiles: ConformalQuantiles | None = None
    note: str | None = _NOT_CALIBRATED

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature is {self.temperature}; give a number above 0")

    @classmethod
    def fit(cls, validation: Predictions) -> "Calibration":
        """Fit both on what a model said of its validation cases."""
        fitted = fit_temperature(validation.logits, validation.label)
        probabilities = validation.probabilities(fitted.temperature)
        quantiles = ConformalQuantiles.fit(probabilities, validation.label, validation.groups())
        return cls(fitted.temperature, quantiles, fitted.note)

    def threshold(self, risk: float) -> ConformalThreshold:
        """The least probability of a class within the prediction set at this risk."""
        if self.quantiles is None:
            raise ValueError("the model has no calibration, so no risk can be promised; train with --set data.val=0.15")
        return self.quantiles.threshold(risk)

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return asdict(self)

    def save(self, folder: str | Path) -> None:
        """Write `calibration.json` into the folder of a bundle."""
        with write_atomically(Path(folder) / CALIBRATION_FILE) as file:
            file.write(json.dumps(self.as_dict()) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> "Calibration":
        """Read the calibration of a bundle's folder; that of one saved by version 0.1 is computed from its file."""
        path, older = Path(folder) / CALIBRATION_FILE, Path(folder) / VALIDATION_FILE
        if path.is_file():
            stored = read_document(path, _AGAIN)
            if set(stored) != {"temperature", "quantiles", "note"}:
                raise ValueError(
                    f"{path} has {shown(sorted(stored))}, not a temperature, quantiles and a note; {_AGAIN}"
                )
            return checked(cls, stored, path, _AGAIN)
        validation = Predictions.load(older) if older.is_file() else None
        try:
            return cls() if validation is None else cls.fit(validation)
        except (ArithmeticError, RuntimeError, ValueError) as error:
            raise ValueError(f"{older} cannot be used ({' '.join(str(error).split())}); {_AGAIN}") from None


def fit_temperature(logits: np.ndarray, label: np.ndarray) -> TemperatureFit:
    """The temperature with the least mean NLL on validation cases (Guo et al. 2017); unknown labels are left out.

    The NLL is convex in b = 1 / temperature, so the zero of its derivative is found by bracketing, which cannot
    diverge. Where every validation case is right the least NLL is at temperature 0, which is certainty drawn from few
    cases. So the cases count as if one more had been seen of which nothing is known (each class equally likely), as in
    the rule of succession: a thousand cases hardly feel it, and ten right ones do not make a model sure.

    Shapes:
        - logits: (N, K); label: (N,), -1 = unknown
    """
    logits, label = np.asarray(logits, dtype=np.float64)[label >= 0], label[label >= 0]
    n, num_classes = logits.shape
    if not n:
        return TemperatureFit(1.0, 0, None, None, "no validation case has a known label; the temperature stays 1")
    logits = logits - logits.mean(1, keepdims=True)
    truth = (n * np.eye(num_classes)[label] + 1 / num_classes) / (n + 1)

    def slope(b: float) -> float:
        """The derivative of the mean NLL at b = 1 / temperature."""
        return float(((softmax(b * logits, axis=1) - truth) * logits).sum(1).mean())

    def mean_nll(b: float) -> float:
        return float(-log_softmax(b * logits, axis=1)[np.arange(n), label].mean())

    low, high = (1 / temperature for temperature in reversed(TEMPERATURES))
    note = None
    if not logits.any():
        b, note = 1.0, "the logits of every case are equal; the temperature stays 1"
    elif slope(low) >= 0:
        b, note = low, f"no better than chance on {n} validation cases; the temperature is at its limit of {1 / low:g}"
    elif slope(high) <= 0:
        b, note = high, f"the logits are very small; the temperature is at its limit of {1 / high:g}"
    else:
        b = float(brentq(slope, low, high, xtol=1e-10))
    return TemperatureFit(1 / b, n, mean_nll(1.0), mean_nll(b), note)
