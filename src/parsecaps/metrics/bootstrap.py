"""The bootstrap over patients: which cases a resample holds, the interval that follows from it, and means with it.

A resample is a column of counts, so metrics that know weights are computed for many resamples at once.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit, logit
from scipy.stats import t as student_t

Bounds = tuple[float, float]  # the lowest and the highest value of a score
SHARE, SIGNED_SHARE, POSITIVE = (0.0, 1.0), (-1.0, 1.0), (0.0, math.inf)
FEW_PATIENTS = 50  # below, some intervals hold the truth less often than they say (`studies.coverage`)
_NORMAL = 1.96  # Student's t with many patients
_LARGEST = 700.0  # exponent
_ROUNDING = 1e-5  # by which a score of float32 may be beyond its bounds
_CELLS = 1_000_000  # of a block of weights: 8 MB, whatever the number of cases


@dataclass(frozen=True)
class Score:
    """A score with its 95 % interval, None where not defined, and `n`, the images that it is computed from."""

    value: float | None
    low: float | None
    high: float | None
    n: int

    @classmethod
    def of(cls, value: float, resampled: np.ndarray, n: int, *, patients: int, **how: Any) -> "Score":
        """From a value and those of R resamples, NaN where undefined; `how` are further arguments of `interval`.

        >>> score = Score.of(0.5, np.linspace(0.4, 0.6, 101), 12, patients=12)
        >>> round(score.low, 2), round(score.high, 2), score.n
        (0.37, 0.63, 12)
        """
        if np.isnan(value):
            return cls(None, None, None, n)
        low, high = interval(value, resampled, patients, **how) or (None, None)
        return cls(float(value), low, high, n)


def interval(
    value: float,
    resampled: np.ndarray,
    patients: int,
    *,
    bounds: Bounds = SHARE,
    means: int = 1,
    noise: np.ndarray | None = None,
) -> tuple[float, float] | None:
    """The 95 % interval of a score: Student's t, with the standard error that the resamples give.

    Percentiles of the resamples would be too narrow with few patients (`studies.coverage`). A score that cannot be
    below 0 is put on the log scale, or on the logit scale if it has an upper bound too. `means` is the number of means
    that it is the mean of, such as one for each class: each takes a degree of freedom. Where all is right or all wrong,
    the interval is that of Clopper and Pearson for as many patients. None without two values or a degree of freedom.

    A distance such as ECE is too high in resamples, as noise only adds to it. `noise` is by how much each resample can
    have changed it; the lower end is then the value less the 97.5th percentile of that.

    >>> low, high = interval(1.0, np.ones(100), 20) or (0, 0)
    >>> round(low, 3), high
    (0.832, 1.0)
    """
    defined = resampled[~np.isnan(resampled)].round(12)  # equal scores may differ in their last bits
    freedom = patients - means
    if len(defined) < 2 or freedom < 1:
        return None
    low, high = bounds
    rounded = min(max(round(float(value), 12), low), high)
    if abs(value - rounded) > _ROUNDING:
        raise ValueError(f"a score of {value:g} is not from {low:g} to {high:g}; give the bounds that it has")
    widened = math.sqrt(patients / freedom) * float(student_t.ppf(0.975, freedom))
    reach = widened * float(defined.std(ddof=1))
    if noise is not None:
        ends = value - widened / _NORMAL * float(np.nanpercentile(noise, 97.5)), value + reach
    elif low < 0 or (rounded == 0 and math.isinf(high)):
        ends = value - reach, value + reach
    elif math.isinf(high):
        factor = math.exp(min(reach / value, _LARGEST))
        ends = value / factor, value * factor
    elif rounded in bounds:
        end = high * 0.025 ** (1 / patients)
        ends = (end, high) if rounded else (0.0, high - end)
    else:
        share = value / high
        middle, step = logit(share), reach / high / (share * (1 - share))
        ends = high * float(expit(middle - step)), high * float(expit(middle + step))
    return max(low, ends[0]), min(high, ends[1])


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


def few_patients(count: int) -> list[str]:
    """A note for those who read the intervals of a few patients.

    >>> few_patients(20), few_patients(50)
    (['few patients: 20; intervals may be too narrow'], [])
    """
    return [f"few patients: {count}; intervals may be too narrow"] if 1 < count < FEW_PATIENTS else []


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
        - n, patients: (K,), the cases that count, and how many patients these are of; `all_patients` of any column
    """

    value: np.ndarray
    draws: np.ndarray
    n: np.ndarray
    patients: np.ndarray
    all_patients: int
    bounds: Bounds

    def scores(self) -> list[Score]:
        each = zip(self.value, self.draws, self.n, self.patients, strict=True)
        return [Score.of(value, draws, int(n), patients=who, bounds=self.bounds) for value, draws, n, who in each]

    def mean(self) -> Score:
        """The mean over the columns that are defined; `n` counts a case as often as it is in a column."""
        there = ~np.isnan(self.value)
        if not there.any():
            return Score(None, None, None, 0)
        draws, n = mean_of_defined(self.draws[there]), int(self.n[there].sum())
        return Score.of(self.value[there].mean(), draws, n, patients=self.all_patients, bounds=self.bounds)

    def over(self, other: "Means") -> "Means":
        """The ratio of these shares to others of the same cases; NaN where the other is 0."""
        value, draws = divide(self.value, other.value), divide(self.draws, other.draws)
        return replace(self, value=value, draws=draws, bounds=POSITIVE)


def means(
    values: np.ndarray, group: np.ndarray, *, bounds: Bounds = SHARE, resamples: int = 1000, seed: int = 0
) -> Means:
    """The mean of each column over the cases that are not NaN in it; no value lies outside of `bounds`.

    Shapes:
        - values: (N, K), NaN = takes no part; group: (N,) the number of each case's patient

    >>> found = means(np.array([[1.0, 0.0], [0.0, np.nan], [0.5, 1.0]]), np.array([0, 1, 2]), resamples=50)
    >>> [(score.value, score.n) for score in found.scores()], found.mean().value
    ([(0.5, 3), (0.5, 2)], 0.5)
    """
    group = np.unique(group, return_inverse=True)[1]  # without gaps, so that all that are drawn have cases
    known = ~np.isnan(values)
    filled = np.where(known, values, 0)
    blocks = [np.empty((values.shape[1], 0))]
    for weights in resampled_weights(group, resamples, seed):
        blocks.append(divide(filled.T @ weights, known.T.astype(np.float64) @ weights))
    return Means(
        value=divide(filled.sum(0), known.sum(0)),
        draws=np.concatenate(blocks, axis=1),
        n=known.sum(0),
        patients=np.array([len(np.unique(group[column])) for column in known.T], dtype=np.int64),
        all_patients=len(np.unique(group[known.any(1)])),
        bounds=bounds,
    )


def mean_of_defined(values: np.ndarray, used: np.ndarray | None = None) -> np.ndarray:
    """The mean over the first axis of what is used and not NaN: (K, ...) -> (...), NaN where nothing is left.

    >>> mean_of_defined(np.array([[1.0, np.nan], [0.0, np.nan], [np.nan, np.nan]]))
    array([0.5, nan])
    """
    defined = ~np.isnan(values) if used is None else used & ~np.isnan(values)
    return divide(np.where(defined, values, 0).sum(0), defined.sum(0))
