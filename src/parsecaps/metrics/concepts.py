"""Metrics of concepts, and of attributes: groups of concepts that exclude each other, the values of one thing.

Concepts named `attribute=value`, as in WBCAtt, are an attribute where no image has two values of it. The value that a
model names is the one with the highest presence, so that an attribute is scored like a small classification of its own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from parsecaps.metrics.bootstrap import divide, mean_of_defined
from parsecaps.metrics.classification import Answers, f1, macro
from parsecaps.metrics.metric import ScoredCases, Weighted
from parsecaps.metrics.predictions import Predictions

THRESHOLD = 0.5  # a concept counts as seen above this presence


class Concepts(Answers):
    """All images with their concepts, each a question of its own; an unknown one takes no part.

    Shapes:
        - presence: (N, m) in [0, 1]; truth: (N, m), 1, 0 or NaN = unknown
        - squared_distance, distance: (N,) of presence and truth, over the known concepts
    """

    def __init__(self, presence: np.ndarray, truth: np.ndarray) -> None:
        super().__init__(presence, truth == 1, presence > THRESHOLD, ~np.isnan(truth))
        self.squared_distance = np.asarray(np.nansum((presence - truth) ** 2, axis=1))
        self.distance = np.sqrt(self.squared_distance)

    @classmethod
    def of(cls, predictions: Predictions) -> "Concepts | None":
        if predictions.presence is None or predictions.concepts is None or not predictions.concept_names:
            return None
        return cls(predictions.presence, predictions.concepts).of_patients(predictions.groups())

    @property
    def counted(self) -> np.ndarray:
        return np.asarray(self.known.any(1))


class Attributes(ScoredCases):
    """All images with the values of their attributes; where the value is not known, an image takes no part.

    Shapes:
        - presence: (N, m); truth: (N, m), NaN = unknown; columns: those of the values of each attribute
    """

    def __init__(self, presence: np.ndarray, truth: np.ndarray, columns: Mapping[str, Sequence[int]]) -> None:
        super().__init__(len(presence))
        self.names = tuple(columns)
        self.each = []
        for js in columns.values():
            named = presence[:, js].argmax(1)[:, None] == np.arange(len(js))
            value = truth[:, js] == 1
            known = np.broadcast_to(value.any(1, keepdims=True), value.shape)
            self.each.append(Answers(presence[:, js], value, named, known))

    @classmethod
    def of(cls, predictions: Predictions) -> "Attributes | None":
        if predictions.presence is None or predictions.concepts is None:
            return None
        if not (columns := find_attributes(predictions.concept_names, predictions.concepts)):
            return None
        return cls(predictions.presence, predictions.concepts, columns).of_patients(predictions.groups())

    @cached_property
    def known(self) -> np.ndarray:
        """Whether the value of each attribute is known: (N, A) bool."""
        return np.stack([answers.known[:, 0] for answers in self.each], axis=1)

    @property
    def counted(self) -> np.ndarray:
        return np.asarray(self.known.any(1))


def find_attributes(names: Sequence[str], truth: np.ndarray) -> dict[str, list[int]]:
    """The columns of each attribute: at least two values, of which no image has two.

    Shapes:
        - truth: (N, m), NaN = unknown

    >>> truth = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    >>> find_attributes(("colour=red", "colour=blue", "round"), truth)
    {'colour': [0, 1]}
    >>> find_attributes(("colour=red", "round", "colour=blue"), truth)  # the first image has both
    {}
    """
    columns: dict[str, list[int]] = {}
    for j, name in enumerate(names):
        attribute, equals, value = name.partition("=")
        if attribute and equals and value:
            columns.setdefault(attribute, []).append(j)
    return {name: js for name, js in columns.items() if len(js) > 1 and ((truth[:, js] == 1).sum(1) <= 1).all()}


def attribute_f1(cases: Weighted) -> np.ndarray:
    """The F1 of the values of each attribute, macro: (A, R).

    >>> attribute_f1(Weighted(Attributes(np.eye(3)[[0, 2]], np.eye(3)[[0, 1]], {"colour": [0, 1, 2]})))  # one is wrong
    array([[0.5]])
    """
    return np.stack([macro(f1)(each) for each in cases.of(_of_attributes)])


def attribute_accuracy(cases: Weighted) -> np.ndarray:
    """The share of images whose value is named, for each attribute: (A, R).

    >>> attribute_accuracy(Weighted(Attributes(np.eye(3)[[0, 2]], np.eye(3)[[0, 1]], {"colour": [0, 1, 2]})))
    array([[0.5]])
    """
    each = cases.of(_of_attributes)
    return np.stack([divide(one.total("hit").sum(0), one.sum(one.cases.known[:, 0])) for one in each])


def over_attributes(metric: Callable[[Weighted], np.ndarray]) -> Callable[[Weighted], np.ndarray]:
    """The mean of a metric over the attributes that have one: (A, R) -> (R,)."""
    return lambda cases: mean_of_defined(cases.of(metric))


def _of_attributes(cases: Weighted) -> list[Weighted]:
    return [Weighted(answers, cases.weights) for answers in cases.cases.each]
