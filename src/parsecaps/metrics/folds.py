"""The folds of a cross-validation beside their pooled score: how much the model depends on who trained it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any, NamedTuple

from parsecaps.metrics.score import Score


@dataclass(frozen=True)
class FoldScores:
    """One fold: the images and patients it tests, its temperature, and the scores that are single numbers."""

    name: str
    images: int
    patients: int
    temperature: float
    single: dict[str, Score]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "FoldScores":
        """Read what `dataclasses.asdict` gave."""
        return cls(**{**stored, "single": {key: Score(**each) for key, each in stored["single"].items()}})


class OverFolds(NamedTuple):
    """Mean and standard deviation (n - 1) of a score over the `folds` where it is defined."""

    mean: float
    std: float | None
    folds: int


def over_folds(folds: Sequence[FoldScores]) -> dict[str, OverFolds]:
    """The mean and the standard deviation of each score over folds.

    The folds share most of their training patients, so this deviation is no standard error: the interval over patients
    belongs to the pooled score.
    """
    found = {}
    for key in dict.fromkeys(key for fold in folds for key in fold.single):
        scores = [fold.single[key].value for fold in folds if key in fold.single]
        values = [value for value in scores if value is not None]
        if values:
            found[key] = OverFolds(mean(values), stdev(values) if len(values) > 1 else None, len(values))
    return found
