"""Several models on the same cases: what their mean says, and which images none of them reads rightly."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from parsecaps.metrics.comparison import match
from parsecaps.metrics.patient_errors import Misread, misread
from parsecaps.metrics.score import Score
from parsecaps.metrics.scores import score
from parsecaps.prediction.predictions import Predictions

_SCORES = ("accuracy", "balanced_accuracy", "patient_accuracy", "pooled_accuracy")


@dataclass(frozen=True)
class Together:
    """What several models have in common on `n` images with known labels.

    `scores` has accuracy and balanced_accuracy of the mean of their probabilities, and those by patient where there are
    such (`evaluation.by_patient`); `alone` is the mean of the accuracies that each has alone. If models err by chance,
    their mean errs less; if they err alike, it does not, and more training of the same kind will not either.
    `all_wrong` and `any_wrong` count the images that all get wrong, and at least one; `misread` says whose the former
    are.
    """

    models: int
    n: int
    alone: float | None
    scores: dict[str, Score]
    all_wrong: int
    any_wrong: int
    misread: Misread | None

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return asdict(self)


def put_together(models: Sequence[Predictions], *, resamples: int = 1000, seed: int = 0) -> Together:
    """The models on the same cases, matched by name; each has its temperature applied already."""
    first = models[0]
    matched = [first, *(match(first, other) for other in models[1:])]
    labelled = np.flatnonzero(first.label >= 0)
    matched = [each.subset(labelled) for each in matched]
    label = matched[0].label
    mean = np.mean([each.probabilities() for each in matched], axis=0)
    ensemble = replace(matched[0], logits=np.log(np.maximum(mean, np.finfo(mean.dtype).tiny)))
    wrong = np.array([each.logits.argmax(1) != label for each in matched])
    by_all = np.logical_and.reduce(wrong)
    scores = score(ensemble, resamples=resamples, seed=seed)
    return Together(
        models=len(models),
        n=len(label),
        alone=float(1 - wrong.mean()) if len(label) else None,
        scores={key: scores[key] for key in _SCORES if key in scores.single},
        all_wrong=int(by_all.sum()),
        any_wrong=int(wrong.any(0).sum()),
        misread=misread(matched[0], by_all),
    )
