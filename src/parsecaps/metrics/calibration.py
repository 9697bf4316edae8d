"""Whether a probability means what it says: reliability bins, Brier score, NLL."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

NUM_BINS = 15


class ReliabilityBin(NamedTuple):
    """The cases whose confidence lies from `low` up to `high`: how sure the model was, and how often right.

    Without cases both are None.
    """

    low: float
    high: float
    n: int
    confidence: float | None
    accuracy: float | None


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
