"""Means over cases, each with its 95 % interval over patients: for whatever is measured case by case."""

from dataclasses import dataclass

import numpy as np

from parsecaps.metrics.bootstrap import percentile_interval, resampled_weights, spread_over_patients
from parsecaps.metrics.score import Score


@dataclass(frozen=True, eq=False)
class Means:
    """K means over cases, and what became of them in R resamples of the patients.

    Shapes:
        - value: (K,), NaN where no case counts; draws: (K, R)
        - n: (K,), the cases that count; several: (K,) bool, whether these are of more than one patient
    """

    value: np.ndarray
    draws: np.ndarray
    n: np.ndarray
    several: np.ndarray

    def scores(self) -> list[Score]:
        """One for each column."""
        each = zip(self.value, self.draws, self.n, self.several, strict=True)
        return [_score(value, draws, int(n), bool(several)) for value, draws, n, several in each]

    def mean(self) -> Score:
        """The mean over the columns that are defined; `n` counts a case as often as it is in a column."""
        there = ~np.isnan(self.value)
        if not there.any():
            return Score(None, None, None, 0)
        known = ~np.isnan(self.draws[there])
        draws = np.where(known, self.draws[there], 0).sum(0) / np.maximum(known.sum(0), 1)
        draws = np.where(known.any(0), draws, np.nan)
        return _score(self.value[there].mean(), draws, int(self.n[there].sum()), bool(self.several[there].any()))

    def over(self, other: "Means") -> "Means":
        """The ratio of these means to others of the same cases; NaN where the other is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value, draws = self.value / other.value, self.draws / other.draws
        return Means(_finite(value), _finite(draws), self.n, self.several)


def means(values: np.ndarray, group: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> Means:
    """The mean of each column over the cases that are not NaN in it.

    Two calls with the same patients and seed resample alike, so their draws can be compared.

    Shapes:
        - values: (N, K), NaN = takes no part; group: (N,) the number of each case's patient

    >>> found = means(np.array([[1.0, 0.0], [0.0, np.nan], [0.5, 1.0]]), np.array([0, 1, 2]), resamples=50)
    >>> [(score.value, score.n) for score in found.scores()], found.mean().value
    ([(0.5, 3), (0.5, 2)], 0.5)
    """
    group = np.unique(group, return_inverse=True)[1].reshape(-1)  # without gaps: all that are drawn have cases
    known = ~np.isnan(values)
    filled = np.where(known, values, 0)
    blocks = []
    for weights in resampled_weights(group, resamples, seed):
        blocks.append(_divide(filled.T @ weights, known.T.astype(np.float64) @ weights))
    return Means(
        value=_divide(filled.sum(0), known.sum(0)),
        draws=np.concatenate(blocks, axis=1) if blocks else np.empty((values.shape[1], 0)),
        n=known.sum(0),
        several=np.array([spread_over_patients(group, column) for column in known.T], dtype=bool),
    )


def _score(value: float, draws: np.ndarray, n: int, several: bool) -> Score:
    if np.isnan(value):
        return Score(None, None, None, n)
    interval = percentile_interval(draws) if several and draws.size else None
    low, high = interval or (None, None)
    return Score(float(value), low, high, n)


def _divide(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(top, bottom, out=np.full(top.shape, np.nan), where=bottom > 0))


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
