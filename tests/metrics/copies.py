"""Intervals the slow way: every resample scored as a data set of its own."""

from collections.abc import Sequence

import numpy as np
import pytest

from parsecaps.metrics import Metric, Score, Scores, score
from parsecaps.metrics.bootstrap import interval
from parsecaps.metrics.metric import ScoredCases
from parsecaps.metrics.predictions import Predictions


def resampled_copies(predictions: Predictions, resamples: int, seed: int) -> list[Scores]:
    """The scores of copies of the predictions, patients drawn with replacement, one copy after the other."""
    random, group = np.random.default_rng(seed), predictions.groups()
    patients = group.max() + 1
    copies = []
    for _ in range(resamples):
        drawn = random.integers(patients, size=patients)
        rows = [row for patient in drawn for row in np.flatnonzero(group == patient)]
        copies.append(score(predictions.subset(rows), resamples=0))
    return copies


def assert_interval_of_copies(
    score: Score, metric: Metric, cases: ScoredCases, copies: Sequence[float | None], column: int = 0
) -> None:
    """The interval of a score is that which follows from its values in copies."""
    masks = [mask if mask.ndim == 1 else mask[:, column] for mask in metric.counted(cases)]
    patients = min(len(np.unique(cases.group[cases.rows][mask])) for mask in masks)
    assert score.value is not None
    wanted = interval(
        score.value, np.array(copies, dtype=float), patients, bounds=metric.bounds, means=metric.means(cases)
    )
    assert (score.low, score.high) == pytest.approx(wanted, abs=1e-6), metric.title
