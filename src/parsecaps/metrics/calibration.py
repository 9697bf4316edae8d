"""Whether a probability means what it says, and what validation patients teach so that it does."""

import json
import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

from parsecaps.files.untrusted import checked, read_document, shown
from parsecaps.files.writing import write_atomically
from parsecaps.metrics.bootstrap import divide
from parsecaps.metrics.conformal import ConformalQuantiles, ConformalThreshold
from parsecaps.metrics.metric import Weighted
from parsecaps.metrics.predictions import Predictions

NUM_BINS = 15
CALIBRATION_FILE = "calibration.json"
TEMPERATURES = (0.05, 20.0)  # the lowest and the highest that a fit may give
_AGAIN = "restore the file as it was saved"
_NOT_CALIBRATED = "the probabilities are not calibrated: the model was saved without validation"


@dataclass(frozen=True)
class Calibration:
    """The temperature of a model's logits, and the conformal quantiles of its probabilities; fitted after training.

    Without validation cases the temperature is 1, and no risk can be promised. `note` is about the temperature.
    """

    temperature: float = 1.0
    quantiles: ConformalQuantiles | None = None
    note: str | None = _NOT_CALIBRATED

    def __post_init__(self) -> None:
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"temperature is {self.temperature}; give a number above 0")

    @classmethod
    def fit(cls, validation: Predictions) -> "Calibration":
        fitted = fit_temperature(validation.logits, validation.label)
        probabilities = validation.probabilities(fitted.temperature)
        return replace(fitted, quantiles=ConformalQuantiles.fit(probabilities, validation.label, validation.groups()))

    def threshold(self, risk: float) -> ConformalThreshold:
        if self.quantiles is None:
            raise ValueError("the model has no calibration, so no risk can be promised; train with --set data.val=0.15")
        return self.quantiles.threshold(risk)

    def save(self, folder: str | Path) -> None:
        with write_atomically(Path(folder) / CALIBRATION_FILE) as file:
            file.write(json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, folder: str | Path) -> "Calibration":
        """Read the calibration of a model's folder; of one saved without validation cases, that of nothing known."""
        path = Path(folder) / CALIBRATION_FILE
        if not path.is_file():
            return cls()
        stored = read_document(path, _AGAIN)
        if set(stored) != {"temperature", "quantiles", "note"}:
            raise ValueError(f"{path} has {shown(sorted(stored))}, not a temperature, quantiles and a note; {_AGAIN}")
        return checked(cls, stored, path, _AGAIN)


def fit_temperature(logits: np.ndarray, label: np.ndarray) -> Calibration:
    """The temperature with the least mean NLL on validation cases (Guo et al. 2017), without quantiles.

    The NLL is convex in b = 1 / temperature, so the zero of its derivative can be bracketed. If every case is right,
    the least NLL is at temperature 0. So one more case counts, with each class equally likely, as in the rule of
    succession: ten right cases do not make a model sure.

    Shapes:
        - logits: (N, K); label: (N,), -1 = unknown
    """
    logits, label = np.asarray(logits, dtype=np.float64)[label >= 0], label[label >= 0]
    n, num_classes = logits.shape
    if not n:
        return Calibration(note="no validation case has a known label; the temperature stays 1")
    logits = logits - logits.mean(1, keepdims=True)
    truth = (n * np.eye(num_classes)[label] + 1 / num_classes) / (n + 1)

    def slope(b: float) -> float:
        return float(((softmax(b * logits, axis=1) - truth) * logits).sum(1).mean())

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
    return Calibration(1 / b, note=note)


@dataclass(frozen=True)
class ReliabilityBin:
    """The cases whose confidence lies from `low` up to `high`: how sure the model was, and how often right."""

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


def ece(cases: Weighted) -> np.ndarray:
    """The expected calibration error: how far confidence and accuracy lie apart, in the mean over bins: (R,).

    >>> from parsecaps.metrics.classification import Classification
    >>> ece(Weighted(Classification(np.log([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1])))).round(3)
    array([0.4])
    """
    return np.asarray(np.abs(cases.of(_excess)).sum(0))


def ece_noise(cases: Weighted) -> np.ndarray:
    """How far resampling moves the bins from those of the cases themselves, which no ECE can move more: (R,)."""
    return np.asarray(np.abs(cases.of(_excess) - _excess(Weighted(cases.cases))).sum(0))


def _excess(cases: Weighted) -> np.ndarray:
    """By how much confidence exceeds accuracy in each bin, as shares of all cases: (15, R)."""
    confidence = cases.cases.probabilities.max(1)
    in_bin = bin_of(confidence)[:, None] == np.arange(NUM_BINS)
    return divide(cases.sum(in_bin * (confidence - cases.cases.right)[:, None]), cases.weights.sum(0))


def brier(cases: Weighted) -> np.ndarray:
    """The squared distance between the probabilities and the truth, over all classes, from 0 to 2: (R,).

    >>> from parsecaps.metrics.classification import Classification
    >>> brier(Weighted(Classification(np.log([[0.9, 0.1], [0.5, 0.5]]), np.array([0, 1])))).round(3)
    array([0.26])
    """
    return cases.mean(((cases.cases.probabilities - cases.cases.positive) ** 2).sum(1))


def nll(cases: Weighted) -> np.ndarray:
    """The mean negative log-likelihood: (R,).

    >>> from parsecaps.metrics.classification import Classification
    >>> nll(Weighted(Classification(np.log([[0.9, 0.1], [0.5, 0.5]]), np.array([0, 1])))).round(3)
    array([0.399])
    """
    label = cases.cases.label
    return cases.mean(-log_softmax(cases.cases.logits, axis=1)[np.arange(len(label)), label])


def bin_of(confidence: np.ndarray) -> np.ndarray:
    """Which of the 15 bins of equal width: a lower edge belongs to its bin, and 1 to the last. (N,) -> (N,) int.

    >>> bin_of(np.array([0.0, 0.5, 0.95, 1.0]))
    array([ 0,  7, 14, 14])
    """
    edges = np.linspace(0, 1, NUM_BINS + 1)
    return np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, NUM_BINS - 1)


def reliability_bins(probabilities: np.ndarray, label: np.ndarray) -> list[ReliabilityBin]:
    """Confidence, the probability of the class that is named, against how often it is right.

    Shapes:
        - probabilities: (N, K); label: (N,) all known
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == label
    where = bin_of(confidence)
    bins = []
    for i in range(NUM_BINS):
        rows = where == i
        means = (float(confidence[rows].mean()), float(right[rows].mean())) if rows.any() else (None, None)
        bins.append(ReliabilityBin(i / NUM_BINS, (i + 1) / NUM_BINS, int(rows.sum()), *means))
    return bins
