import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.metrics import log_loss

from parsecaps.metrics.calibration import TEMPERATURES, fit_temperature
from tests.messages import message


def calibrated(count: int, num_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits whose softmax is the probability with which the labels were drawn."""
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=(count, num_classes))
    below = softmax(logits, axis=1).cumsum(1) < random.random((count, 1))
    return logits, below.sum(1).clip(max=num_classes - 1)


@pytest.mark.parametrize("factor", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("num_classes", [2, 5])
def test_it_finds_the_temperature_that_was_lost(factor: float, num_classes: int) -> None:
    logits, label = calibrated(6000, num_classes, seed=1)
    fit = fit_temperature(factor * logits, label)
    assert fit.temperature == pytest.approx(factor, rel=0.06)
    assert fit.note is None


def test_nothing_near_by_is_better() -> None:
    logits, label = calibrated(20000, 4, seed=2)
    found = fit_temperature(3 * logits, label).temperature
    fitted, before, *grid = (
        log_loss(label, softmax(3 * logits / t, axis=1)) for t in (found, 1, *np.geomspace(0.5, 10, 200))
    )
    assert fitted == pytest.approx(min(grid), abs=1e-4)
    assert fitted < before


@given(seed=st.integers(0, 10**6), count=st.integers(1, 30), scale=st.sampled_from([1e-8, 1e-3, 1.0, 1e3, 1e8]))
def test_it_is_always_within_its_limits(seed: int, count: int, scale: float) -> None:
    random = np.random.default_rng(seed)
    label = random.integers(-1, 3, size=count)
    fit = fit_temperature(scale * random.normal(size=(count, 3)), label)
    assert TEMPERATURES[0] * (1 - 1e-9) <= fit.temperature <= TEMPERATURES[1] * (1 + 1e-9)


def test_separable_cases_do_not_make_it_certain() -> None:
    for count in (10, 1000):
        label = np.arange(count) % 3
        logits = 4.0 * np.eye(3)[label]
        fit = fit_temperature(logits, label)
        confidence = softmax(logits / fit.temperature, axis=1).max(1)
        assert confidence == pytest.approx((count + 1 / 3) / (count + 1), abs=1e-6)  # rule of succession
        assert fit.note is None


def test_what_cannot_be_fitted_is_said() -> None:
    assert fit_temperature(np.ones((3, 2)), np.array([-1, -1, -1])).temperature == 1.0
    message(fit_temperature(np.ones((1, 2)), np.array([-1])).note)
    flat = fit_temperature(np.full((4, 3), 7.0), np.array([0, 1, 2, 0]))
    assert flat.temperature == 1
    message(flat.note)
    wrong = fit_temperature(np.eye(2)[[0, 1, 0, 1]], np.array([1, 0, 1, 0]))
    assert wrong.temperature == TEMPERATURES[1]
    message(wrong.note)


def test_unknown_labels_are_left_out() -> None:
    logits, label = calibrated(300, 3, seed=3)
    label[::3] = -1
    known = label >= 0
    assert fit_temperature(logits, label) == fit_temperature(logits[known], label[known])
