"""Scores of cases that count several times, for many resamples at once.

What depends on the cases alone is prepared once. A call then takes weights (N, R), a column for each resample, and
gives the score of each as if the cases had been copied so often: in exact arithmetic the same number. NaN is a score
that is not defined in a resample.
"""

import numpy as np
from scipy.special import softmax

from parsecaps.metrics.calibration import NUM_BINS, bin_of, brier, nll

THRESHOLD = 0.5  # a concept counts as seen above this presence


class WeightedAuroc:
    """How often a positive case has the higher score of a pair, ties counting half.

    With the negatives in order, their running sum of weights tells each positive how many lie below it and how many
    not above: half of both together is what it wins.

    Shapes:
        - score: (N,); positive: (N,) bool; called with (N, R) -> (R,)

    >>> area = WeightedAuroc(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    >>> area(np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]))
    array([0.875, 1.   ])
    """

    def __init__(self, score: np.ndarray, positive: np.ndarray) -> None:
        order = np.argsort(score, kind="stable")
        self.up, self.down = order[positive[order]], order[~positive[order]]
        self.below = np.searchsorted(score[self.down], score[self.up], "left")
        self.not_above = np.searchsorted(score[self.down], score[self.up], "right")

    def __call__(self, weights: np.ndarray) -> np.ndarray:
        running = np.zeros((len(self.down) + 1, weights.shape[1]))
        np.cumsum(weights[self.down], axis=0, out=running[1:])
        mine = weights[self.up]
        halves = running[self.below]
        halves += running[self.not_above]
        return _divide(np.einsum("pr,pr->r", mine, halves) / 2, mine.sum(0) * running[-1])


class WeightedClassScores:
    """Scores of classification.

    Shapes:
        - logits: (N, K); label: (N,) all known; called with (N, R)
        - accuracy, ece, brier, nll: (R,); count, precision, recall, f1, specificity, auroc: (K, R)
    """

    def __init__(self, logits: np.ndarray, label: np.ndarray) -> None:
        probabilities = softmax(logits, axis=1)
        predicted, confidence = logits.argmax(1), probabilities.max(1)
        classes = np.arange(logits.shape[1])
        truth, named = label[:, None] == classes, predicted[:, None] == classes
        excess = (confidence - (predicted == label))[:, None]
        in_bin = bin_of(confidence)[:, None] == np.arange(NUM_BINS)
        self.counts = [_rows(mask) for mask in (truth, named, truth & named)]
        self.excess = _rows(in_bin * excess)
        self.brier, self.nll = brier(probabilities, label), nll(logits, label)
        self.areas = [WeightedAuroc(probabilities[:, k], truth[:, k]) for k in classes]

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        count, named, hits = (rows @ weights for rows in self.counts)
        total = weights.sum(0)
        return {
            "accuracy": _divide(hits.sum(0), total),
            "ece": _divide(np.abs(self.excess @ weights).sum(0), total),
            "brier": _divide(self.brier @ weights, total),
            "nll": _divide(self.nll @ weights, total),
            "count": count,
            "precision": _divide(hits, named),
            "recall": _divide(hits, count),
            "f1": _divide(2 * hits, count + named),
            "specificity": _divide(total - count - named + hits, total - count),
            "auroc": np.stack([area(weights) for area in self.areas]),
        }


class WeightedConceptScores:
    """Scores of concepts; an unknown concept takes no part.

    Shapes:
        - presence: (N, m); concepts: (N, m), NaN = unknown; called with (N, R)
        - explanation_error_l2, explanation_error_l2_squared: (R,); count (of those present), auroc, f1: (m, R)
    """

    def __init__(self, presence: np.ndarray, concepts: np.ndarray) -> None:
        known, present, seen = ~np.isnan(concepts), concepts == 1, presence > THRESHOLD
        self.counts = [_rows(mask) for mask in (present, known & seen, present & seen)]
        self.squared = squared_distance(presence, concepts)
        self.any_known = known.any(1).astype(np.float64)
        self.known = list(known.T)
        self.areas = [WeightedAuroc(presence[rows, j], present[rows, j]) for j, rows in enumerate(self.known)]

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        count, seen, hits = (rows @ weights for rows in self.counts)
        images = self.any_known @ weights
        return {
            "explanation_error_l2": _divide(np.sqrt(self.squared) @ weights, images),
            "explanation_error_l2_squared": _divide(self.squared @ weights, images),
            "count": count,
            "auroc": np.stack([area(weights[rows]) for area, rows in zip(self.areas, self.known, strict=True)]),
            "f1": _divide(2 * hits, count + seen),
        }


def macro(scores: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The means of the scores of classes or concepts, over those that occur in the truth (`count`).

    A class that occurs but is never named has no precision, and counts as 0: to ignore a class must not pay. Any other
    score that is not defined is left out. (K, ...) -> (...), NaN where nothing is left.
    """
    means: dict[str, np.ndarray] = {}
    for key in ("precision", "recall", "f1", "specificity", "auroc"):
        if key in scores:
            undefined = np.isnan(scores[key])
            used = scores["count"] > 0 if key == "precision" else (scores["count"] > 0) & ~undefined
            means[key] = _divide(np.where(used & ~undefined, scores[key], 0).sum(0), used.sum(0))
    return means


def squared_distance(presence: np.ndarray, concepts: np.ndarray) -> np.ndarray:
    """The squared L2 distance between presence and truth over the known concepts of each image: (N, m) -> (N,)."""
    return np.asarray(np.nansum((presence - concepts) ** 2, axis=1))


def _rows(per_case: np.ndarray) -> np.ndarray:
    """(N, c) -> (c, N) float64, ready to be multiplied with weights."""
    return np.ascontiguousarray(per_case.T, dtype=np.float64)


def _divide(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    top, bottom = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    undefined = np.full(np.broadcast(top, bottom).shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=undefined, where=bottom > 0))
