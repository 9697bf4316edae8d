"""What prediction sets do on cases that did not calibrate them: whether they keep the risk, and what it costs."""

from dataclasses import dataclass

import numpy as np

from parsecaps.metrics.metric import Cases, Weighted


@dataclass(frozen=True)
class Sets:
    """The classes that cannot be ruled out at a risk: (N, K) bool, in the order of the predictions; and notes."""

    inside: np.ndarray
    notes: list[str]


class LabelledSets(Cases):
    """The prediction sets of the images with a known label.

    Shapes:
        - inside: (N, K) bool; label: (N,) all known
    """

    def __init__(self, inside: np.ndarray, label: np.ndarray) -> None:
        super().__init__(len(label))
        self.covers = inside[np.arange(len(label)), label]
        self.size = inside.sum(1)
        self.single = self.size == 1


def coverage(cases: Weighted) -> np.ndarray:
    """The share of sets that hold the truth, which should be 1 - risk at least: (R,).

    >>> coverage(Weighted(LabelledSets(np.array([[1, 0], [1, 1], [1, 0]]) == 1, np.array([0, 1, 1]))))
    array([0.66666667])
    """
    return cases.mean(cases.cases.covers)


def answered(cases: Weighted) -> np.ndarray:
    """The share of sets of one class; the model abstains from all others: (R,).

    >>> answered(Weighted(LabelledSets(np.array([[1, 0], [1, 1], [1, 0]]) == 1, np.array([0, 1, 1]))))
    array([0.66666667])
    """
    return cases.mean(cases.cases.single)


def accuracy_answered(cases: Weighted) -> np.ndarray:
    """The share of sets of one class that hold the truth: (R,).

    >>> sets = LabelledSets(np.array([[1, 0], [1, 1], [1, 0]]) == 1, np.array([0, 1, 1]))
    >>> accuracy_answered(Weighted(sets))
    array([0.5])
    """
    return cases.mean(cases.cases.covers, cases.cases.single)


def mean_size(cases: Weighted) -> np.ndarray:
    """The classes in a set: (R,).

    >>> mean_size(Weighted(LabelledSets(np.array([[1, 0], [1, 1], [1, 1]]) == 1, np.array([0, 1, 1]))))
    array([1.66666667])
    """
    return cases.mean(cases.cases.size)
