import numpy as np
import pytest

from parsecaps.metrics import score
from parsecaps.metrics.calibration import reliability_bins
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
