"""Attributes: groups of concepts that exclude each other, the values of one thing, as in WBCAtt.

Concepts named `attribute=value` belong together where no image has two values of the attribute. The value that a model
names is the one with the highest presence, so that an attribute is scored like a small classification of its own.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from parsecaps.metrics.weighted import macro

Attributes = dict[str, list[int]]
PER_ATTRIBUTE = ("attribute_f1", "attribute_accuracy")


def find_attributes(names: Sequence[str], truth: np.ndarray) -> Attributes:
    """The columns of each attribute: at least two values, of which no image has two.

    Shapes:
        - truth: (N, m), NaN = unknown

    >>> truth = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    >>> find_attributes(("colour=red", "colour=blue", "round"), truth)
    {'colour': [0, 1]}
    >>> find_attributes(("colour=red", "round", "colour=blue"), truth)  # the first image has both
    {}
    """
    columns: Attributes = {}
    for j, name in enumerate(names):
        attribute, equals, value = name.partition("=")
        if attribute and equals and value:
            columns.setdefault(attribute, []).append(j)
    return {name: js for name, js in columns.items() if len(js) > 1 and ((truth[:, js] == 1).sum(1) <= 1).all()}


def attribute_scores(
    presence: np.ndarray, truth: np.ndarray, attributes: Mapping[str, list[int]]
) -> dict[str, np.ndarray]:
    """The share of images whose value is named rightly, and the F1 of values, macro: by torchmetrics.

    Images whose value is not known take no part; nor do values that occur in none of the others, in a macro mean.

    Shapes:
        - presence: (N, m); truth: (N, m), NaN = unknown
        - attribute_accuracy, attribute_f1: (A,); mean_attribute_accuracy, mean_attribute_f1: (), over the attributes
    """
    from torchmetrics.functional.classification import multiclass_f1_score

    scores = []
    for columns in attributes.values():
        label, named, _ = _values(presence, truth, columns)
        if not len(label):
            scores.append((np.nan, np.nan))
            continue
        pair = torch.from_numpy(named), torch.from_numpy(label)
        f1 = multiclass_f1_score(*pair, num_classes=len(columns), average="none").double().numpy()
        count = np.bincount(label, minlength=len(columns))
        scores.append((float(macro({"count": count, "f1": f1})["f1"]), float((label == named).mean())))
    return _with_means(np.array(scores).reshape(len(attributes), 2).T)


class WeightedAttributeScores:
    """The same of cases that count several times, as in `weighted`.

    Shapes:
        - presence: (N, m); truth: (N, m), NaN = unknown; called with (N, R)
        - attribute_accuracy, attribute_f1: (A, R); mean_attribute_accuracy, mean_attribute_f1: (R,)
    """

    def __init__(self, presence: np.ndarray, truth: np.ndarray, attributes: Mapping[str, list[int]]) -> None:
        self.attributes = []
        for columns in attributes.values():
            label, named, rows = _values(presence, truth, columns)
            values = np.arange(len(columns))[:, None]
            is_value, is_named = label == values, named == values
            masks = [mask.astype(np.float64) for mask in (is_value, is_named, is_value & is_named)]
            self.attributes.append((rows, masks))

    def __call__(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        f1, accuracy = [], []
        for rows, masks in self.attributes:
            count, named, hits = (mask @ weights[rows] for mask in masks)
            with np.errstate(invalid="ignore"):
                f1.append(macro({"count": count, "f1": 2 * hits / (count + named)})["f1"])
                accuracy.append(hits.sum(0) / count.sum(0))
        return _with_means(np.array([f1, accuracy]).reshape(2, len(self.attributes), weights.shape[1]))


def known_value(truth: np.ndarray, columns: Sequence[int]) -> np.ndarray:
    """Whether the value of an attribute is known, image by image: (N, m) -> (N,) bool."""
    return np.asarray((truth[:, columns] == 1).any(1))


def _values(presence: np.ndarray, truth: np.ndarray, columns: Sequence[int]) -> tuple[np.ndarray, ...]:
    """The value, the value named, and the rows of the images that have one."""
    rows = np.flatnonzero(known_value(truth, columns))
    return (truth[rows][:, columns] == 1).argmax(1), presence[rows][:, columns].argmax(1), rows


def _with_means(scores: np.ndarray) -> dict[str, np.ndarray]:
    """(2, A, ...), in the order of `PER_ATTRIBUTE`; the means are over the attributes that have a score."""
    defined = ~np.isnan(scores)
    with np.errstate(invalid="ignore"):
        means = np.where(defined, scores, 0).sum(1) / defined.sum(1)
    named = dict(zip(PER_ATTRIBUTE, scores, strict=True))
    return {**named, **{f"mean_{key}": mean for key, mean in zip(PER_ATTRIBUTE, means, strict=True)}}
