"""Whether a probability means what it says: reliability bins, and one temperature that mends overconfidence."""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_softmax, softmax

NUM_BINS = 15
TEMPERATURES = (0.05, 20.0)  # the lowest and the highest that a fit may give


class ReliabilityBin(NamedTuple):
    """The cases whose confidence lies from `low` up to `high`: how sure the model was, and how often right.

    Without cases both are None.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


class TemperatureFit(NamedTuple):
    """A temperature to divide logits by, from `n` cases, and the mean NLL without and with it.

    `note` says why the temperature is not what was asked for, where it is not.
    """

    temperature: float
    n: int
    nll_before: float | None
    nll_after: float | None
    note: str | None = None


def brier(probabilities: np.ndarray, label: np.ndarray) -> np.ndarray:
    """The squared distance between the probabilities and the truth, over all classes, from 0 to 2: (N,)."""
    return np.asarray(((probabilities - np.eye(probabilities.shape[1])[label]) ** 2).sum(1))


def nll(logits: np.ndarray, label: np.ndarray) -> np.ndarray:
    """Minus the logarithm of the probability of the truth: (N,)."""
    return np.asarray(-log_softmax(logits, axis=1)[np.arange(len(label)), label])


def bin_of(confidence: np.ndarray) -> np.ndarray:
    """Which of the 15 bins of equal width: a lower edge belongs to its bin, and 1 to the last. (N,) -> (N,) int.

    >>> bin_of(np.array([0.0, 0.5, 0.95, 1.0]))
    array([ 0,  7, 14, 14])
    """
    edges = np.linspace(0, 1, NUM_BINS + 1)
    return np.clip(np.searchsorted(edges, confidence, side="right") - 1, 0, NUM_BINS - 1)


def reliability_bins(probabilities: np.ndarray, label: np.ndarray) -> list[ReliabilityBin]:
    """Confidence, the probability of the class that is named, against how often it is right; unknown labels left out.

    Shapes:
        - probabilities: (N, K); label: (N,), -1 = unknown
    """
    probabilities, label = probabilities[label >= 0], label[label >= 0]
    confidence, right = probabilities.max(1), probabilities.argmax(1) == label
    where = bin_of(confidence)
    bins = []
    for i in range(NUM_BINS):
        rows = where == i
        n = int(rows.sum())
        means = (float(confidence[rows].mean()), float(right[rows].mean())) if n else (None, None)
        bins.append(ReliabilityBin(i / NUM_BINS, (i + 1) / NUM_BINS, n, *means))
    return bins


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
    return TemperatureFit(1 / b, n, float(nll(logits, label).mean()), float(nll(b * logits, label).mean()), note)
