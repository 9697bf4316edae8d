import numpy as np
import pytest
from scipy.special import softmax

from parsecaps.metrics import score
from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.calibration import ece, reliability_bins
from parsecaps.metrics.classification import Classification
from parsecaps.metrics.metric import Weighted
from parsecaps.metrics.predictions import Predictions
from tests.metrics.make import make_predictions


def test_bins_by_hand() -> None:
    probabilities = np.array([[0.95, 0.05], [0.05, 0.95], [0.97, 0.03], [0.45, 0.55]])
    bins = reliability_bins(probabilities, np.array([0, 0, 0, 1]))
    assert len(bins) == 15
    assert [each.n for each in bins] == [0] * 8 + [1] + [0] * 5 + [3]
    assert bins[14].confidence == pytest.approx((0.95 + 0.95 + 0.97) / 3)
    assert bins[14].accuracy == pytest.approx(2 / 3)
    assert (bins[0].confidence, bins[0].accuracy) == (None, None)


def test_bins_add_up_to_the_calibration_error() -> None:
    scores = score(make_predictions(300, ties=False), resamples=0)
    total = sum(each.n * abs((each.confidence or 0) - (each.accuracy or 0)) for each in scores.reliability)
    assert scores["ece"].value == pytest.approx(total / scores.labelled)


def predictions(logits: np.ndarray, label: np.ndarray) -> Predictions:
    """Those of images without patients."""
    classes = tuple("abc"[: logits.shape[1]])
    names = [str(i) for i in range(len(label))]
    return Predictions(logits=logits, label=label, patient=[""] * len(label), name=names, classes=classes)


def test_the_interval_of_the_calibration_error_has_its_value_and_the_truth() -> None:
    """Models that are calibrated, where resamples lie above the value: their middle 95 % excludes it, and the truth."""
    random, excluded, held = np.random.default_rng(0), 0, 0
    for trial in range(60):
        logits = random.normal(scale=2, size=(60, 3))
        label = (softmax(logits, axis=1).cumsum(1) < random.random((60, 1))).sum(1)
        cases = predictions(logits, label)
        found = score(cases, resamples=200, seed=trial)["ece"]
        assert found.value is not None
        assert found.low is not None
        assert found.high is not None
        assert 0 <= found.low <= found.value <= found.high <= 1
        held += found.low == 0
        labelled = Classification.of(cases)
        (weights,) = resampled_weights(labelled.group, 200, trial)
        excluded += found.value < np.percentile(ece(Weighted(labelled, weights[labelled.rows])), 2.5)
    assert excluded >= 4
    assert held >= 57


def test_a_model_that_is_too_sure_is_not_called_calibrated() -> None:
    random = np.random.default_rng(0)
    label = random.integers(2, size=300)
    logits = 5.0 * np.eye(2)[np.where(random.random(300) < 0.7, label, 1 - label)]
    found = score(predictions(logits, label))["ece"]
    assert found.low is not None
    assert 0.15 < found.low < 0.3
