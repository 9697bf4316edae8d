"""Whether a probability means what it says: calibration error, Brier score, NLL, reliability bins."""

from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from parsecaps.metrics.bootstrap import divide
from parsecaps.metrics.metric import Weighted

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
    confidence, right = cases.cases.probabilities.max(1), cases.cases.named == cases.cases.label
    in_bin = bin_of(confidence)[:, None] == np.arange(NUM_BINS)
    return divide(cases.sum(in_bin * (confidence - right)[:, None]), cases.weights.sum(0))


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
        n = int(rows.sum())
        means = (float(confidence[rows].mean()), float(right[rows].mean())) if n else (None, None)
        bins.append(ReliabilityBin(i / NUM_BINS, (i + 1) / NUM_BINS, n, *means))
    return bins
