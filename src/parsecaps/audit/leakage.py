"""Concept leakage: do presences carry more about the class than the concepts they stand for (Mahinpei et al. 2021)?

A presence of 0.62 instead of 0.58 hardly says more about whether the concept is there, but a head that reads it can
learn to tell classes apart by it. If a classifier does much better with presences than with the same presences cut to 0
and 1, the numbers carry something beyond the concepts that they are named after: leakage, or at its most harmless, how
sure the model is of a concept.
"""

from dataclasses import dataclass, replace

import numpy as np

from parsecaps.metrics import THRESHOLD, Difference, Weighted, compare
from parsecaps.metrics.calibration import nll
from parsecaps.metrics.classification import Classification
from parsecaps.prediction.predictions import Predictions

_UNSEEN = 1e-6  # the probability of a class that no training case has


@dataclass(frozen=True)
class Leakage:
    """How well the class follows from hard concepts (`first`) and from soft presences (`second`), on `n` other cases.

    `accuracy` has both with their difference, the leakage, and its 95 % interval over patients. `nll_hard` and
    `nll_soft` are the mean losses, which see leakage before it changes a decision.
    """

    accuracy: Difference
    nll_hard: float
    nll_soft: float
    n: int


def leakage(train: Predictions, test: Predictions, *, resamples: int = 1000, seed: int = 0) -> Leakage:
    """Fit a logistic regression on the training cases, on soft and on hard concepts, and score both on the others.

    Hard means seen or not: a presence above 0.5. Soft is the same and, for each concept, how far the presence lies from
    the mean of those that are seen alike: what a small shift says would otherwise drown in the step from absent to
    present, which a linear function cannot look past. Cases without label take no part. For concepts without a name
    there is no 0.5 to speak of; the number then says little.
    """
    train, test = (each.subset(np.flatnonzero(each.label >= 0)) for each in (train, test))
    for what, each in (("training", train), ("other", test)):
        if each.presence is None:
            raise ValueError(f"the {what} cases have no presences; leakage is about models with concepts")
        if not len(each):
            raise ValueError(f"none of the {what} cases has a label; leakage cannot be measured")
    assert train.presence is not None
    assert test.presence is not None
    hard, soft = (
        replace(
            test, logits=class_logits(view(train.presence, train.presence), train, view(test.presence, train.presence))
        )
        for view in (_hard, _soft)
    )
    difference = compare(hard, soft, resamples=resamples, seed=seed).differences["accuracy"]
    hard_nll, soft_nll = (float(nll(Weighted(Classification.of(each)))[0]) for each in (hard, soft))
    return Leakage(difference, hard_nll, soft_nll, len(test))


def _hard(presence: np.ndarray, known: np.ndarray) -> np.ndarray:
    return (presence > THRESHOLD).astype(np.float64)


def _soft(presence: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether each concept is seen, and how far its presence is from the mean of those `known` that are seen alike."""
    hard, sides = presence > THRESHOLD, known > THRESHOLD
    means = [
        (known * side).sum(0) / np.maximum(side.sum(0), 1)  # 0 where none is on that side: one shift for all
        for side in (~sides, sides)
    ]
    return np.column_stack([hard, presence - np.where(hard, means[1], means[0])])


def class_logits(features: np.ndarray, train: Predictions, others: np.ndarray) -> np.ndarray:
    """What a logistic regression from the features (N, m) of training cases says of `others` (M, m): (M, classes).

    The features are standardised, the squared weights of all classes count half.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    seen = np.unique(train.label)
    logits = np.full((len(others), len(train.classes)), np.log(_UNSEEN))
    if len(seen) == 1:
        logits[:, seen] = 0
        return logits
    scaler = StandardScaler().fit(features)
    inverse_penalty = 2.0 if len(seen) == 2 else 1.0  # of two classes it fits the difference, with half the penalty
    regression = LogisticRegression(C=inverse_penalty, tol=1e-10, max_iter=10_000)
    regression.fit(scaler.transform(features), train.label)
    logits[:, seen] = regression.predict_log_proba(scaler.transform(others))
    return logits
