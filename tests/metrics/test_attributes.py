from dataclasses import replace

import numpy as np
import pytest

from parsecaps.metrics.attributes import WeightedAttributeScores, attribute_scores, find_attributes
from parsecaps.metrics.scores import score
from parsecaps.prediction.predictions import Predictions
from tests.metrics.copies import resampled_copies
from tests.metrics.make import make_predictions

NAMES = ("colour=red", "colour=blue", "colour=green", "round", "size=big", "size=small")


def made(count: int = 80, seed: int = 0) -> Predictions:
    """Colour and size are exclusive, `round` stands alone; some values are not known."""
    random = np.random.default_rng(seed)
    colour, size = random.integers(3, size=count), random.integers(2, size=count)
    truth = np.concatenate([np.eye(3)[colour], random.integers(2, size=(count, 1)), np.eye(2)[size]], axis=1)
    truth[:5] = np.nan
    truth[5:9, :3] = np.nan
    truth[9, :3] = 0
    presence = np.clip(truth + random.normal(0, 0.7, truth.shape), 0, 1)
    plain = make_predictions(count, unknown=0)
    return replace(plain, presence=np.nan_to_num(presence, nan=0.5), concepts=truth, concept_names=NAMES)


def by_hand(presence: np.ndarray, truth: np.ndarray) -> tuple[float, float]:
    """Macro F1 and accuracy of one attribute, counted image by image."""
    pairs = [(int(t.argmax()), int(p.argmax())) for p, t in zip(presence, truth, strict=True) if (t == 1).any()]
    f1 = []
    for value in sorted({t for t, _ in pairs}):
        hits = sum(t == p == value for t, p in pairs)
        f1.append(2 * hits / (sum(t == value for t, _ in pairs) + sum(p == value for _, p in pairs)))
    return float(np.mean(f1)), sum(t == p for t, p in pairs) / len(pairs)


def test_by_hand() -> None:
    predictions = made()
    assert predictions.presence is not None
    assert predictions.concepts is not None
    scores = score(predictions, resamples=0)
    assert list(scores.by_attribute) == ["colour", "size"]
    wanted = {}
    for name, columns in {"colour": [0, 1, 2], "size": [4, 5]}.items():
        wanted[name] = by_hand(predictions.presence[:, columns], predictions.concepts[:, columns])
        found = scores.by_attribute[name]
        assert (found["attribute_f1"].value, found["attribute_accuracy"].value) == pytest.approx(wanted[name], abs=1e-6)
    assert (scores.by_attribute["colour"]["attribute_f1"].n, scores.by_attribute["size"]["attribute_f1"].n) == (70, 75)
    means = np.mean(list(wanted.values()), axis=0)
    assert scores["mean_attribute_f1"].value == pytest.approx(means[0], abs=1e-6)
    assert scores["mean_attribute_accuracy"].value == pytest.approx(means[1], abs=1e-6)
    assert scores["mean_attribute_f1"].n == 75


def test_an_interval_is_that_of_copies() -> None:
    predictions = made()
    scores = score(predictions, resamples=40, seed=3)
    copies = resampled_copies(predictions, 40, seed=3)
    for key in ("mean_attribute_f1", "mean_attribute_accuracy"):
        found = [copy[key].value for copy in copies]
        assert (scores[key].low, scores[key].high) == pytest.approx(np.percentile(found, (2.5, 97.5)), abs=1e-6)
    found = [copy.by_attribute["colour"]["attribute_f1"].value for copy in copies]
    colour = scores.by_attribute["colour"]["attribute_f1"]
    assert (colour.low, colour.high) == pytest.approx(np.percentile(found, (2.5, 97.5)), abs=1e-6)


def test_a_value_that_does_not_occur_takes_no_part() -> None:
    """One image of a, named a; one of b, named c: F1 1 and 0, and none for c."""
    truth, presence = np.eye(3)[[0, 1]], np.eye(3)[[0, 2]]
    attributes = {"x": [0, 1, 2]}
    assert attribute_scores(presence, truth, attributes)["attribute_f1"].tolist() == [0.5]
    weighted = WeightedAttributeScores(presence, truth, attributes)(np.array([[1.0, 2.0, 0.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(weighted["attribute_f1"], [[0.5, 1.0, np.nan]])
    np.testing.assert_allclose(weighted["mean_attribute_accuracy"], [0.5, 1.0, np.nan])


def test_what_is_an_attribute() -> None:
    truth = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert find_attributes(("a=1", "a=2", "b=1", "c"), truth) == {"a": [0, 1]}
    assert find_attributes(("a=1", "b", "a=2", "c"), truth) == {}  # an image has both
    assert find_attributes(("=1", "=2", "a=", "a="), truth) == {}


def test_without_attributes_nothing_is_said_of_them() -> None:
    scores = score(make_predictions(), resamples=10)
    assert scores.by_attribute == {}
    assert "mean_attribute_f1" not in scores.single
