"""What a clinician's corrections are worth: accuracy as more and more concepts are set to their truth."""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from parsecaps.explain.intervention import ConceptReasoning
from parsecaps.metrics.bootstrap import percentile_interval, resampled_weights
from parsecaps.prediction.predictions import Predictions

Order = Literal["uncertain", "random"]


@dataclass(frozen=True)
class InterventionCurve:
    """Accuracy on `n` labelled images after 0, 1, ..., m corrections of each, with 95 % intervals over patients.

    An image with unknown concepts has fewer corrections to take, and stays as it is after its last.
    """

    order: Order
    accuracy: list[float]
    interval: list[tuple[float, float] | None]
    n: int


def intervention_curve(
    reasoning: ConceptReasoning,
    predictions: Predictions,
    order: Order = "uncertain",
    *,
    repeats: int = 10,
    resamples: int = 1000,
    seed: int = 0,
) -> InterventionCurve:
    """Correct the concepts of each image one by one.

    "uncertain": first the concept whose presence is nearest to what parts present from absent, as an assistant would
    ask. "random": the mean over `repeats` random orders, each image with its own; what asking cleverly must beat.
    A corrected concept takes the presence that stands for present or absent (`ConceptReasoning`).
    """
    if order not in get_args(Order):
        raise ValueError(f"order is {order!r}; choose one of {', '.join(get_args(Order))}")
    if predictions.presence is None or predictions.concepts is None:
        raise ValueError("the cases have no known concepts, so nothing can be corrected; give data with concepts")
    some = predictions.subset(np.flatnonzero(predictions.label >= 0))
    if not len(some):
        raise ValueError("no case has a known label; accuracy cannot be measured")
    presence, truth = some.presence, some.concepts
    assert presence is not None
    assert truth is not None
    random = np.random.default_rng(seed)
    turns = 1 if order == "uncertain" else repeats
    right = np.zeros((len(some), presence.shape[1] + 1))
    for _ in range(turns):
        doubt = np.abs(presence - reasoning.threshold) if order == "uncertain" else random.random(presence.shape)
        right += _right(reasoning, presence, truth, doubt, some.label) / turns
    blocks = [
        weights.T @ right / weights.sum(0)[:, None] for weights in resampled_weights(some.groups(), resamples, seed)
    ]
    drawn = np.concatenate(blocks) if blocks else np.empty((0, right.shape[1]))
    intervals = [percentile_interval(column) for column in drawn.T]
    return InterventionCurve(order, right.mean(0).tolist(), intervals, len(some))


def _right(
    reasoning: ConceptReasoning, presence: np.ndarray, truth: np.ndarray, doubt: np.ndarray, label: np.ndarray
) -> np.ndarray:
    """Whether each image is right after each number of corrections, least doubt value first: (N, m + 1)."""
    known = ~np.isnan(truth)
    rank = np.where(known, doubt, np.inf).argsort(1, kind="stable").argsort(1, kind="stable")
    corrected = np.where(truth == 1, reasoning.present, reasoning.absent)
    steps = []
    for count in range(presence.shape[1] + 1):
        now = np.where(known & (rank < count), corrected, presence)
        steps.append(reasoning.logits(now).argmax(1) == label)
    return np.stack(steps, axis=1).astype(np.float64)
