"""The bootstrap over patients: which cases a resample holds, and the interval that its scores span.

A resample is a column of counts: how often each case is in it. Scores that know weights are then computed for many
resamples at once, and nothing is copied.
"""

from collections.abc import Iterator

import numpy as np

PERCENTILES = (2.5, 97.5)  # of a 95 % interval
_CELLS = 1_000_000  # of a block of weights: 8 MB, whatever the number of cases


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


def spread_over_patients(group: np.ndarray, mask: np.ndarray) -> bool:
    """Whether the cases of a mask come from at least two patients: one alone shows nothing of how patients differ."""
    seen = group[mask]
    return bool(len(seen)) and bool((seen != seen[0]).any())
