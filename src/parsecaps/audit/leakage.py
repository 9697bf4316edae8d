"""Do presences carry more about the class than the concepts they stand for (concept leakage)?

A presence of 0.62 instead of 0.58 hardly says more about whether the concept is there, but a head that reads it can
learn to tell classes apart by it. If a classifier does much better with presences than with the same presences cut to 0
and 1, the numbers carry something beyond the concepts that they are named after: leakage, or at its most harmless, how
sure the model is of a concept.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import log_softmax, softmax

from parsecaps.metrics import THRESHOLD, Difference, Weighted, compare
from parsecaps.metrics.calibration import nll
from parsecaps.metrics.classification import Classification
from parsecaps.prediction.predictions import Predictions

PENALTY = 1.0  # half of this times the squared weights is added to the summed loss


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
    num_classes = len(train.classes)
    said = []
    for view in (_hard, _soft):
        regression = fit_logistic(view(train.presence, train.presence), train.label, num_classes)
        said.append(replace(test, logits=regression.logits(view(test.presence, train.presence))))
    hard, soft = said
    difference = compare(hard, soft, resamples=resamples, seed=seed).differences["accuracy"]
    hard_nll, soft_nll = (float(nll(Weighted(Classification.of(each)))[0]) for each in said)
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


@dataclass(frozen=True, eq=False)
class LogisticRegression:
    """Logits as a linear function of standardised features.

    Shapes:
        - mean, scale: (m,); weight: (m, K); bias: (K,)
    """

    mean: np.ndarray
    scale: np.ndarray
    weight: np.ndarray
    bias: np.ndarray

    def logits(self, features: np.ndarray) -> np.ndarray:
        """(N, m) -> (N, K)."""
        return np.asarray((features - self.mean) / self.scale @ self.weight + self.bias)


def fit_logistic(
    features: np.ndarray, label: np.ndarray, num_classes: int, *, penalty: float = PENALTY
) -> LogisticRegression:
    """The least summed cross-entropy plus `penalty / 2` times the squared weights: convex, so there is one answer.

    Shapes:
        - features: (N, m); label: (N,) from 0 to num_classes - 1
    """
    from scipy.optimize import minimize

    n, m = features.shape
    mean, std = features.mean(0), features.std(0)
    scale = np.where(std > 1e-9, std, 1.0)
    x = (features - mean) / scale
    truth = np.eye(num_classes)[label]

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weight, bias = flat[: m * num_classes].reshape(m, num_classes), flat[m * num_classes :]
        logits = x @ weight + bias
        error = softmax(logits, axis=1) - truth
        value = -log_softmax(logits, axis=1)[np.arange(n), label].sum() + penalty / 2 * (weight**2).sum()
        return float(value), np.append((x.T @ error + penalty * weight).ravel(), error.sum(0))

    start = np.zeros((m + 1) * num_classes)
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-12, "gtol": 1e-6})
    weight, bias = found.x[: m * num_classes].reshape(m, num_classes), found.x[m * num_classes :]
    return LogisticRegression(mean, scale, weight, bias)
