"""Intervals the slow way: every resample scored as a data set of its own."""

import numpy as np

from parsecaps.metrics import Scores, score
from parsecaps.prediction.predictions import Predictions


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
