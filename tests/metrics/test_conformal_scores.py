import json
from dataclasses import asdict

import numpy as np
import pytest

from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.conformal_scores import KEYS, Sets, SetScores, score_sets
from parsecaps.prediction.conformal import ConformalQuantiles, prediction_sets, set_summary
from tests.metrics.make import make_predictions


def test_values_and_intervals_are_those_of_copied_cases() -> None:
    """A second way: in each resample every case is copied as often as it was drawn, and the sets are summed up."""
    calibration, predictions = make_predictions(200, seed=1, ties=False), make_predictions(90, ties=False)
    quantiles = ConformalQuantiles.fit(calibration.probabilities(), calibration.label, calibration.groups())
    threshold = quantiles.threshold(0.2)
    inside = prediction_sets(predictions.probabilities(), threshold.probability)
    (found,) = score_sets(predictions, {0.2: Sets(inside, ["a note"])}, resamples=40, seed=3)
    once = set_summary(inside, predictions.label)
    drawn: dict[str, list[float]] = {key: [] for key in KEYS}
    for weights in resampled_weights(predictions.groups(), 40, 3):
        for column in weights.T.astype(int):
            copied = set_summary(inside.repeat(column, axis=0), predictions.label.repeat(column))
            for key in KEYS:
                drawn[key].append(getattr(copied, key))
    for key in KEYS:
        score = getattr(found, key)
        assert score.value == pytest.approx(getattr(once, key))
        assert (score.low, score.high) == pytest.approx(tuple(np.percentile(drawn[key], (2.5, 97.5))))
    assert found.coverage.n == (predictions.label >= 0).sum()
    labelled = predictions.label >= 0
    assert found.accuracy_answered.n == (inside[labelled].sum(1) == 1).sum()
    assert SetScores.from_dict(json.loads(json.dumps(asdict(found)))) == found
    assert found.notes == ["a note"]


def test_where_everything_abstains_there_is_nothing_to_be_right_about() -> None:
    predictions = make_predictions(30)
    everything = np.ones_like(predictions.logits, dtype=bool)
    (found,) = score_sets(predictions, {0.01: Sets(everything, [])}, resamples=10)
    assert (found.coverage.value, found.answered.value, found.mean_size.value) == (1, 0, 3)
    assert (found.accuracy_answered.value, found.accuracy_answered.n) == (None, 0)
