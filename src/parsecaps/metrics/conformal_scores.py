"""What prediction sets do on cases that did not calibrate them: whether they keep their promise, and what it costs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.score import Estimates, Score
from parsecaps.prediction.conformal import set_summary
from parsecaps.prediction.predictions import Predictions

KEYS = ("coverage", "answered", "accuracy_answered", "mean_size")


@dataclass(frozen=True)
class SetScores:
    """The sets at one risk, over images with known labels, as `conformal.SetSummary` has them, each with its interval.

    The promise is a coverage of at least `1 - risk`. `notes` say why every image abstains, where it does.
    """

    risk: float
    coverage: Score
    answered: Score
    accuracy_answered: Score
    mean_size: Score
    notes: list[str]

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "SetScores":
        """Read what `dataclasses.asdict` gave."""
        scores = {key: Score(**stored[key]) for key in KEYS}
        return cls(risk=stored["risk"], notes=list(stored["notes"]), **scores)


@dataclass(frozen=True)
class Sets:
    """The classes that cannot be ruled out at a risk: (N, K) bool, in the order of the predictions; and notes."""

    inside: np.ndarray
    notes: list[str]


def score_sets(
    predictions: Predictions, sets: Mapping[float, Sets], *, resamples: int = 1000, seed: int = 0
) -> list[SetScores]:
    """Measure the sets of each risk; intervals as those of all other scores, by resampling patients."""
    known, group = predictions.label >= 0, predictions.groups()
    label = predictions.label[known]
    found = []
    for risk, each in sets.items():
        inside = each.inside[known]
        summary = set_summary(inside, label)
        values = {key: np.array(np.nan if (v := getattr(summary, key)) is None else v) for key in KEYS}
        estimates = Estimates(values, group)
        held = inside[np.arange(len(label)), label].astype(np.float64)
        size = inside.sum(1).astype(np.float64)
        single = (size == 1).astype(np.float64)
        for drawn in resampled_weights(group, resamples, seed):
            weights = drawn[known]
            total, answered = weights.sum(0), single @ weights
            estimates.add(
                {
                    "coverage": _share(held @ weights, total),
                    "answered": _share(answered, total),
                    "accuracy_answered": _share((held * single) @ weights, answered),
                    "mean_size": _share(size @ weights, total),
                }
            )
        alone = known.copy()
        alone[known] = single == 1
        about = dict.fromkeys(KEYS, known) | {"accuracy_answered": alone}
        found.append(SetScores(risk=risk, notes=each.notes, **{key: estimates.score(key, about[key]) for key in KEYS}))
    return found


def _share(top: np.ndarray, bottom: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(top, bottom, out=np.full(np.shape(top), np.nan), where=bottom > 0))
