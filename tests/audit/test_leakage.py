from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from parsecaps.audit.concept_audit import class_logits, leakage
from parsecaps.metrics.predictions import Predictions
from tests.messages import refused


def cases(seed: int, *, leaks: bool, count: int = 300) -> Predictions:
    """Class and concepts have nothing to do with each other; a presence may carry the class in its last digits."""
    random = np.random.default_rng(seed)
    concepts = random.integers(0, 2, (count, 3)).astype(float)
    label = random.integers(0, 3, count)
    presence = 0.2 + 0.6 * concepts + 0.02 * random.random((count, 3))
    if leaks:
        presence[:, 0] += 0.03 * label
    return Predictions(
        logits=np.zeros((count, 3)),
        label=label,
        patient=[""] * count,
        name=[f"{seed} {i}" for i in range(count)],
        classes=("a", "b", "c"),
        presence=presence,
        concepts=concepts,
        concept_names=("x", "y", "z"),
    )


@pytest.mark.parametrize("count", [2, 3])
def test_the_logistic_regression_is_at_its_minimum(count: int) -> None:
    """Against another optimiser of the loss: cross-entropy, and half of the squared weights of all classes."""
    random = np.random.default_rng(0)
    x, label = random.normal(size=(60, 2)) * [3, 0.1] + [5, 0], random.integers(0, count, 60)
    known = replace(cases(0, leaks=False, count=60), label=label)
    known = replace(known, classes=known.classes[:count], logits=np.zeros((60, count)))
    found = log_softmax(class_logits(x, known, x), axis=1)
    standard = (x - x.mean(0)) / x.std(0)

    def loss(flat: np.ndarray) -> float:
        weight, bias = flat[: 2 * count].reshape(2, count), flat[2 * count :]
        logits = standard @ weight + bias
        return float(-log_softmax(logits, axis=1)[np.arange(60), label].sum() + (weight**2).sum() / 2)

    slow = minimize(loss, np.zeros(3 * count), method="BFGS", options={"gtol": 1e-9, "maxiter": 20000}).x
    wanted = log_softmax(standard @ slow[: 2 * count].reshape(2, count) + slow[2 * count :], axis=1)
    np.testing.assert_allclose(found, wanted, atol=2e-5)


def test_a_feature_that_never_varies_has_no_part_and_a_class_without_cases_no_chance() -> None:
    x = np.column_stack([np.linspace(-1, 1, 20), np.full(20, 0.3)])
    known = replace(cases(0, leaks=False, count=20), label=2 * (x[:, 0] > 0).astype(int))
    found = class_logits(x, known, x + np.array([0, 0.1]))
    assert (found.argmax(1) == known.label).all()
    np.testing.assert_allclose(found, class_logits(x, known, x), atol=1e-6)
    assert softmax(found, axis=1)[:, 1].max() < 2e-6
    one = class_logits(x, replace(known, label=np.ones(20, int)), x)
    assert softmax(one, axis=1)[:, 1].min() > 0.99999


def test_what_leaks_is_found_and_what_does_not_is_not() -> None:
    clean = leakage(cases(0, leaks=False), cases(1, leaks=False), resamples=100)
    leaky = leakage(cases(0, leaks=True), cases(1, leaks=True), resamples=100)
    assert clean.accuracy.difference == pytest.approx(0, abs=0.08)
    assert leaky.accuracy.first == pytest.approx(1 / 3, abs=0.1)
    assert leaky.accuracy.second is not None
    assert leaky.accuracy.second > 0.55
    assert leaky.accuracy.low is not None
    assert leaky.accuracy.low > 0.15
    assert leaky.nll_soft < leaky.nll_hard - 0.1
    assert abs(clean.nll_soft - clean.nll_hard) < 0.05
    assert leaky.n == 300


def test_what_cannot_be_measured_is_refused() -> None:
    good = cases(0, leaks=False, count=6)
    without = replace(good, presence=None, concepts=None, concept_names=())
    with refused(ValueError):
        leakage(without, good)
    with refused(ValueError):
        leakage(good, replace(good, label=np.full(6, -1)))
