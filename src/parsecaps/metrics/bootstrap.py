"""The bootstrap over patients: which cases a resample holds, the interval that its scores span, and means with it.

A resample is a column of counts: how often each case is in it. Metrics that know weights are then computed for many
resamples at once, and nothing is copied.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

PERCENTILES = (2.5, 97.5)  # of a 95 % interval
_CELLS = 1_000_000  # of a block of weights: 8 MB, whatever the number of cases


@dataclass(frozen=True)
class Score:
    """A score with its 95 % interval, None where not defined, and `n`, the images that it is computed from.

    There is no interval without at least two patients (positive and negative ones each, for AUROC): one alone cannot
    show how patients differ.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int

    @classmethod
    def of(cls, value: float, resampled: np.ndarray, n: int, *, several: bool) -> "Score":
        """From a value and those of R resamples, NaN where undefined; `several` patients are behind it, or one.

        >>> Score.of(0.5, np.array([*range(101), np.nan]), 12, several=True)
        Score(value=0.5, low=2.5, high=97.5, n=12)
        """
        if np.isnan(value):
            return cls(None, None, None, n)
        low, high = (percentile_interval(resampled) if several else None) or (None, None)
        return cls(float(value), low, high, n)


def resampled_weights(group: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """As many patients as there are, drawn with replacement, each with all of its cases.

    Blocks of at most a million cells; their columns do not depend on where one block ends and the next begins.

    Shapes:
        - group: (N,) the patient of each case, numbered from 0
        - each block: (N, r) float64 counts; the r of all blocks add up to `resamples`
    """
    patients = int(group.max(initial=-1)) + 1
    if not patients:
        return
    random = np.random.default_rng(seed)
    block = max(1, _CELLS // max(len(group), 1))
    for start in range(0, resamples, block):
        count = min(block, resamples - start)
        drawn = random.integers(patients, size=(count, patients)) + patients * np.arange(count)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=count * patients).reshape(count, patients)
        yield counts.T.astype(np.float64)[group]


def percentile_interval(values: np.ndarray) -> tuple[float, float] | None:
    """The middle 95 % of the values that are defined, or None if none is.

    >>> percentile_interval(np.array([*range(101), np.nan]))
    (2.5, 97.5)
    """
    defined = values[~np.isnan(values)]
    if not len(defined):
        return None
    low, high = np.percentile(defined, PERCENTILES)
    return float(low), float(high)


def several_patients(group: np.ndarray, mask: np.ndarray) -> bool:
    """Whether the cases of a mask come from at least two patients: one alone shows nothing of how patients differ.

    >>> several_patients(np.array([0, 0, 1]), np.array([True, True, False]))
    False
    """
    found = group[mask]
    return bool(len(found)) and bool((found != found[0]).any())


def divide(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    """The quotient, NaN where the bottom is 0.

    >>> divide(np.array([1.0, 0.0]), np.array([2.0, 0.0]))
    array([0.5, nan])
    """
    top, bottom = np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    undefined = np.full(np.broadcast(top, bottom).shape, np.nan)
    return np.asarray(np.divide(top, bottom, out=undefined, where=bottom > 0))


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
        return [Score.of(value, draws, int(n), several=bool(several)) for value, draws, n, several in each]

    def mean(self) -> Score:
        """The mean over the columns that are defined; `n` counts a case as often as it is in a column."""
        there = ~np.isnan(self.value)
        if not there.any():
            return Score(None, None, None, 0)
        draws, several = mean_of_defined(self.draws[there]), bool(self.several[there].any())
        return Score.of(self.value[there].mean(), draws, int(self.n[there].sum()), several=several)

    def over(self, other: "Means") -> "Means":
        """The ratio of these means to others of the same cases; NaN where the other is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            value, draws = self.value / other.value, self.draws / other.draws
        return Means(_finite(value), _finite(draws), self.n, self.several)


def means(values: np.ndarray, group: np.ndarray, *, resamples: int = 1000, seed: int = 0) -> Means:
    """The mean of each column over the cases that are not NaN in it: for whatever is measured case by case.

    Two calls with the same patients and seed resample alike, so their draws can be compared.

    Shapes:
        - values: (N, K), NaN = takes no part; group: (N,) the number of each case's patient

    >>> found = means(np.array([[1.0, 0.0], [0.0, np.nan], [0.5, 1.0]]), np.array([0, 1, 2]), resamples=50)
    >>> [(score.value, score.n) for score in found.scores()], found.mean().value
    ([(0.5, 3), (0.5, 2)], 0.5)
    """
    group = without_gaps(group)
    known = ~np.isnan(values)
    filled = np.where(known, values, 0)
    blocks = []
    for weights in resampled_weights(group, resamples, seed):
        blocks.append(divide(filled.T @ weights, known.T.astype(np.float64) @ weights))
    return Means(
        value=divide(filled.sum(0), known.sum(0)),
        draws=np.concatenate(blocks, axis=1) if blocks else np.empty((values.shape[1], 0)),
        n=known.sum(0),
        several=np.array([several_patients(group, column) for column in known.T], dtype=bool),
    )


def mean_of_defined(values: np.ndarray, used: np.ndarray | None = None) -> np.ndarray:
    """The mean over the first axis of what is used and not NaN: (K, ...) -> (...), NaN where nothing is left.

    >>> mean_of_defined(np.array([[1.0, np.nan], [0.0, np.nan], [np.nan, np.nan]]))
    array([0.5, nan])
    """
    defined = ~np.isnan(values) if used is None else used & ~np.isnan(values)
    return divide(np.where(defined, values, 0).sum(0), defined.sum(0))


def without_gaps(group: np.ndarray) -> np.ndarray:
    """Patients numbered from 0 without gaps, so that all that are drawn have cases: (N,) -> (N,) int."""
    return np.unique(group, return_inverse=True)[1].reshape(-1)


def _finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
