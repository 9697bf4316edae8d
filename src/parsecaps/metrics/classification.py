"""Metrics of classification, each class against the rest; those of yes-or-no answers serve concepts as well."""

from collections.abc import Callable
from functools import cached_property

import numpy as np
from scipy.special import softmax

from parsecaps.metrics.bootstrap import divide, mean_of_defined
from parsecaps.metrics.metric import ScoredCases, Weighted
from parsecaps.metrics.predictions import Predictions

ROC_POINTS = 200


class Answers(ScoredCases):
    """Yes-or-no questions in C columns, as whether an image is of a class: the truth, and what a model says.

    Shapes:
        - scores: (N, C), the higher, the more a yes; positive, answered, known: (N, C) bool, the truth, the answer of
          the model, and whether the truth is known; all known if None
    """

    def __init__(
        self, scores: np.ndarray, positive: np.ndarray, answered: np.ndarray, known: np.ndarray | None = None
    ) -> None:
        super().__init__(len(scores))
        self.known = np.ones(scores.shape, dtype=bool) if known is None else known
        self.scores, self.positive, self.answered = scores, positive & self.known, answered & self.known
        self.hit = self.positive & self.answered

    @cached_property
    def negative(self) -> np.ndarray:
        return np.asarray(self.known & ~self.positive)

    @cached_property
    def ranks(self) -> "list[Ranks]":
        each = zip(self.scores.T, self.positive.T, self.negative.T, strict=True)
        return [Ranks(scores, positive, negative) for scores, positive, negative in each]


class Classification(Answers):
    """The images with a known label, and the class that the model names, the one with the highest logit.

    Shapes:
        - logits: (N, K); label: (N,) all known; named: (N,) the class; right: (N,) bool
    """

    def __init__(self, logits: np.ndarray, label: np.ndarray) -> None:
        self.logits, self.label, self.named = logits, label, logits.argmax(1)
        self.right = np.asarray(self.named == label)
        self.probabilities = softmax(logits, axis=1)
        classes = np.arange(logits.shape[1])
        super().__init__(self.probabilities, label[:, None] == classes, self.named[:, None] == classes)

    @classmethod
    def of(cls, predictions: Predictions) -> "Classification":
        """Those of a model; its images without label take part in the resampling of patients only."""
        rows = np.flatnonzero(predictions.label >= 0)
        return cls(predictions.logits[rows], predictions.label[rows]).of_patients(predictions.groups(), rows)


class Ranks:
    """Where each positive case stands among the negative ones, by their scores.

    Shapes:
        - scores: (N,); positive, negative: (N,) bool, never both
    """

    def __init__(self, scores: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> None:
        order = np.argsort(scores, kind="stable")
        self.positive, self.negative = order[positive[order]], order[negative[order]]
        self.below = np.searchsorted(scores[self.negative], scores[self.positive], "left")
        self.not_above = np.searchsorted(scores[self.negative], scores[self.positive], "right")

    def auroc(self, weights: np.ndarray) -> np.ndarray:
        """How often a positive case has the higher score of a pair, ties counting half: (N, R) -> (R,).

        With the negatives in order, their running sum of weights tells each positive how many lie below it and how
        many not above: half of both together is what it wins.

        >>> ranks = Ranks(np.array([0.1, 0.4, 0.4, 0.8]), np.array([0, 0, 1, 1]) == 1, np.array([1, 1, 0, 0]) == 1)
        >>> ranks.auroc(np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 1.0], [1.0, 1.0]]))
        array([0.875, 1.   ])
        """
        running = np.zeros((len(self.negative) + 1, weights.shape[1]))
        np.cumsum(weights[self.negative], axis=0, out=running[1:])
        mine = weights[self.positive]
        halves = running[self.below]
        halves += running[self.not_above]
        return divide(np.einsum("pr,pr->r", mine, halves) / 2, mine.sum(0) * running[-1])


def precision(cases: Weighted) -> np.ndarray:
    """How many of the images that are answered with yes are positive: (C, R).

    >>> precision(Weighted(Classification(np.eye(2)[[0, 1, 1, 1]], np.array([0, 0, 1, 1])))).round(3).ravel()
    array([1.   , 0.667])
    """
    return divide(cases.total("hit"), cases.total("answered"))


def recall(cases: Weighted) -> np.ndarray:
    """How many of the positive images are answered with yes, the sensitivity: (C, R).

    >>> recall(Weighted(Classification(np.eye(2)[[0, 1, 1, 1]], np.array([0, 0, 1, 1])))).ravel()
    array([0.5, 1. ])
    """
    return divide(cases.total("hit"), cases.total("positive"))


def specificity(cases: Weighted) -> np.ndarray:
    """How many of the negative images are answered with no: (C, R).

    >>> specificity(Weighted(Classification(np.eye(2)[[0, 1, 1, 1]], np.array([0, 0, 1, 1])))).ravel()
    array([1. , 0.5])
    """
    negatives = cases.total("negative")
    return divide(negatives - cases.total("answered") + cases.total("hit"), negatives)


def f1(cases: Weighted) -> np.ndarray:
    """The harmonic mean of precision and recall: (C, R).

    >>> f1(Weighted(Classification(np.eye(2)[[0, 1, 1, 1]], np.array([0, 0, 1, 1])))).round(3).ravel()
    array([0.667, 0.8  ])
    """
    return divide(2 * cases.total("hit"), cases.total("positive") + cases.total("answered"))


def auroc(cases: Weighted) -> np.ndarray:
    """The area under the ROC curve of each column; NaN without positive or without negative images: (C, R).

    >>> auroc(Weighted(Classification(np.array([[0, 1], [0, 3], [0, 2], [0, 4]]), np.array([0, 0, 1, 1])))).ravel()
    array([0.75, 0.75])
    """
    return np.stack([ranks.auroc(cases.weights) for ranks in cases.cases.ranks])


def macro(metric: Callable[[Weighted], np.ndarray]) -> Callable[[Weighted], np.ndarray]:
    """The mean of a metric over the classes that occur in the truth: (C, R) -> (R,).

    A class that occurs but is never named has no precision, and counts as 0: to ignore a class must not pay. Any other
    score that is not defined is left out.

    >>> cases = Weighted(Classification(np.eye(3)[[0, 1, 1, 2]], np.array([0, 0, 1, 1])))  # nothing is of class 2
    >>> macro(recall)(cases), macro(precision)(cases)
    (array([0.5]), array([0.75]))
    """

    def mean(cases: Weighted) -> np.ndarray:
        each, occurs = cases.of(metric), cases.total("positive") > 0
        if metric is precision:
            each = np.where(np.isnan(each), 0, each)
        return mean_of_defined(each, occurs)

    return mean


def count_classes(cases: Classification) -> int:
    """How many classes occur, of which a mean over classes has one mean each."""
    return int(cases.positive.any(0).sum())


def confusion_matrix(label: np.ndarray, named: np.ndarray, num_classes: int) -> np.ndarray:
    """How often each class is named for each, the truth in rows: (N,), (N,) -> (K, K) int.

    >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
    array([[1, 1],
           [0, 1]])
    """
    return np.bincount(label * num_classes + named, minlength=num_classes**2).reshape(num_classes, num_classes)


def roc_curve(scores: np.ndarray, positive: np.ndarray) -> list[tuple[float, float]] | None:
    """The corners of the ROC curve from (0, 0) to (1, 1), about 200 at most; None where AUROC is not defined.

    >>> roc_curve(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True]))
    [(0.0, 0.0), (0.0, 1.0), (1.0, 1.0)]
    """
    from sklearn.metrics import roc_curve as all_points

    if positive.all() or not positive.any():
        return None
    false, true, _ = all_points(positive, scores, drop_intermediate=False)
    points = np.stack([false, true], axis=1)
    step = np.diff(points, axis=0)
    turns = np.abs(step[:-1, 0] * step[1:, 1] - step[:-1, 1] * step[1:, 0]) > 1e-12
    points = points[np.concatenate([[True], turns, [True]])]
    if len(points) > ROC_POINTS:
        points = points[np.linspace(0, len(points) - 1, ROC_POINTS).round().astype(int)]
    return [(round(x, 4), round(y, 4)) for x, y in points.tolist()]
