from dataclasses import replace

import numpy as np
import pytest

from parsecaps.metrics import METRICS, Sets, score_sets
from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.conformal import ConformalQuantiles, LabelledSets, prediction_sets
from tests.metrics.copies import assert_interval_of_copies
from tests.metrics.make import make_predictions

KEYS = ("coverage", "answered", "accuracy_answered", "mean_size")


def by_hand(inside: np.ndarray, label: np.ndarray) -> dict[str, float]:
    """Counted image by image, as the names say."""
    images = [(row, int(k)) for row, k in zip(inside, label, strict=True) if k >= 0]
    single = [bool(row[k]) for row, k in images if row.sum() == 1]
    return {
        "coverage": sum(bool(row[k]) for row, k in images) / len(images),
        "answered": len(single) / len(images),
        "accuracy_answered": sum(single) / len(single) if single else float("nan"),
        "mean_size": sum(int(row.sum()) for row, _ in images) / len(images),
    }


def test_values_and_intervals_are_those_of_copied_cases() -> None:
    """A second way: in each resample every case is copied as often as it was drawn, and the sets are summed up."""
    calibration, predictions = make_predictions(200, seed=1, ties=False), make_predictions(90, ties=False)
    quantiles = ConformalQuantiles.fit(calibration.probabilities(), calibration.label, calibration.groups())
    threshold = quantiles.threshold(0.2)
    inside = prediction_sets(predictions.probabilities(), threshold.probability)
    (found,) = score_sets(predictions, {0.2: Sets(inside, ["a note"])}, resamples=40, seed=3)
    rows = np.flatnonzero(predictions.label >= 0)
    cases = LabelledSets(inside[rows], predictions.label[rows]).of_patients(predictions.groups(), rows)
    once = by_hand(inside, predictions.label)
    drawn: dict[str, list[float]] = {key: [] for key in KEYS}
    for weights in resampled_weights(predictions.groups(), 40, 3):
        for column in weights.T.astype(int):
            copied = by_hand(inside.repeat(column, axis=0), predictions.label.repeat(column))
            for key in KEYS:
                drawn[key].append(copied[key])
    for key in KEYS:
        score = found[key]
        assert score.value == pytest.approx(once[key])
        (metric,) = (metric for metric in METRICS if (metric.part, metric.name) == ("sets", key))
        assert_interval_of_copies(score, metric, cases, drawn[key])
    assert found["coverage"].n == (predictions.label >= 0).sum()
    labelled = predictions.label >= 0
    assert found["accuracy_answered"].n == (inside[labelled].sum(1) == 1).sum()
    assert found.notes == ["a note"]
    assert {*KEYS} == {metric.name for metric in METRICS if metric.part == "sets"}


def test_where_everything_abstains_there_is_nothing_to_be_right_about() -> None:
    predictions = make_predictions(30)
    everything = np.ones_like(predictions.logits, dtype=bool)
    (found,) = score_sets(predictions, {0.01: Sets(everything, [])}, resamples=10)
    assert (found["coverage"].value, found["answered"].value, found["mean_size"].value) == (1, 0, 3)
    assert (found["accuracy_answered"].value, found["accuracy_answered"].n) == (None, 0)


def test_sets_of_images_without_labels_are_left_out() -> None:
    predictions = make_predictions(4).subset([0, 1, 2, 3])
    inside = np.array([[1, 0, 0], [1, 0, 0], [1, 1, 0], [1, 0, 0]]) == 1
    (found,) = score_sets(replace(predictions, label=np.array([0, 1, 1, -1])), {0.5: Sets(inside, [])}, resamples=0)
    assert [found[key].value for key in KEYS] == pytest.approx([2 / 3, 2 / 3, 0.5, 4 / 3])
    (none,) = score_sets(replace(predictions, label=np.full(4, -1)), {0.5: Sets(inside, [])}, resamples=10)
    assert [(none[key].value, none[key].n) for key in KEYS] == [(None, 0)] * 4
