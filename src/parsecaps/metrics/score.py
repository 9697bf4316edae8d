"""One score: its value, its interval over patients, and the images behind it."""

from dataclasses import dataclass

import numpy as np

from parsecaps.metrics.bootstrap import percentile_interval, spread_over_patients
from parsecaps.metrics.weighted import macro


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


class Estimates:
    """Scores and what became of them in resamples, collected block by block; both get their macro means, `mean_...`.

    Shapes:
        - values: each () or (K,); blocks: the same names, each (r,) or (K, r); group: (N,) the patient of each case
    """

    def __init__(self, values: dict[str, np.ndarray], group: np.ndarray) -> None:
        self.values = _with_means(values)
        self.group = group
        self.blocks: list[dict[str, np.ndarray]] = []

    def add(self, block: dict[str, np.ndarray]) -> None:
        """Take the scores of some more resamples."""
        self.blocks.append(_with_means(block))

    def score(self, key: str, about: np.ndarray, *also: np.ndarray, row: int | None = None) -> Score:
        """The score `key` of class or concept `row`, which is computed from the images of the mask `about` (N,).

        It has an interval if these images, and those of each mask in `also`, come from several patients.
        """
        at = () if row is None else row
        n, value = int(about.sum()), float(self.values[key][at])
        if np.isnan(value):
            return Score(None, None, None, n)
        if not self.blocks or not all(spread_over_patients(self.group, mask) for mask in (about, *also)):
            return Score(value, None, None, n)
        interval = percentile_interval(np.concatenate([block[key][at] for block in self.blocks]))
        low, high = interval or (None, None)
        return Score(value, low, high, n)


def _with_means(scores: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**scores, **{f"mean_{key}": mean for key, mean in macro(scores).items()}}
