from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from parsecaps.metrics import METRICS, Weighted, find_metric, score
from parsecaps.metrics.classification import auroc, f1
from parsecaps.metrics.concepts import (
    Attributes,
    Concepts,
    attribute_accuracy,
    attribute_f1,
    find_attributes,
    over_attributes,
)
from parsecaps.metrics.predictions import Predictions
from tests.metrics.copies import assert_interval_of_copies, resampled_copies
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


def test_attributes_by_hand() -> None:
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


def test_attributes_are_classifications_for_sklearn() -> None:
    """Macro over the values that occur, which `labels` says."""
    predictions = made(seed=4)
    assert predictions.presence is not None
    assert predictions.concepts is not None
    scores = score(predictions, resamples=0)
    for name, columns in {"colour": [0, 1, 2], "size": [4, 5]}.items():
        truth = predictions.concepts[:, columns]
        rows = (truth == 1).any(1)
        value, named = truth[rows].argmax(1), predictions.presence[rows][:, columns].argmax(1)
        found = scores.by_attribute[name]
        wanted = f1_score(value, named, average="macro", labels=np.unique(value))
        assert found["attribute_f1"].value == pytest.approx(wanted)
        assert found["attribute_accuracy"].value == pytest.approx(accuracy_score(value, named))


def test_an_interval_is_that_of_copies() -> None:
    predictions = made()
    scores = score(predictions, resamples=40, seed=3)
    copies = resampled_copies(predictions, 40, seed=3)
    cases = Attributes.of(predictions)
    assert cases is not None
    for key in ("mean_attribute_f1", "mean_attribute_accuracy"):
        assert_interval_of_copies(scores[key], find_metric(key), cases, [copy[key].value for copy in copies])
    found = [copy.by_attribute["colour"]["attribute_f1"].value for copy in copies]
    (metric,) = (metric for metric in METRICS if (metric.part, metric.name) == ("by_attribute", "attribute_f1"))
    column = cases.names.index("colour")
    assert_interval_of_copies(scores.by_attribute["colour"]["attribute_f1"], metric, cases, found, column)


def test_a_value_that_does_not_occur_takes_no_part() -> None:
    """One image of a, named a; one of b, named c: F1 1 and 0, and none for c."""
    truth, presence = np.eye(3)[[0, 1]], np.eye(3)[[0, 2]]
    cases = Weighted(Attributes(presence, truth, {"x": [0, 1, 2]}), np.array([[1.0, 2.0, 0.0], [1.0, 0.0, 0.0]]))
    np.testing.assert_allclose(attribute_f1(cases), [[0.5, 1.0, np.nan]])
    np.testing.assert_allclose(over_attributes(attribute_accuracy)(cases), [0.5, 1.0, np.nan])


def test_what_is_an_attribute() -> None:
    truth = np.array([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert find_attributes(("a=1", "a=2", "b=1", "c"), truth) == {"a": [0, 1]}
    assert find_attributes(("a=1", "b", "a=2", "c"), truth) == {}  # an image has both
    assert find_attributes(("=1", "=2", "a=", "a="), truth) == {}


def test_without_attributes_nothing_is_said_of_them() -> None:
    scores = score(make_predictions(), resamples=10)
    assert scores.by_attribute == {}
    assert "mean_attribute_f1" not in scores.single


def test_concepts_by_hand() -> None:
    presence = np.array([[0.9, 0.2], [0.4, 0.6], [0.5, 0.1]])
    cases = Weighted(Concepts(presence, np.array([[1, 0], [0, np.nan], [1, np.nan]])))
    distances = [np.hypot(0.1, 0.2), 0.4, 0.5]
    for name, wanted in (("explanation_error_l2", distances), ("explanation_error_l2_squared", np.square(distances))):
        assert find_metric(name).function(cases) == pytest.approx(np.mean(wanted))
    assert f1(cases)[0] == pytest.approx(2 / 3)  # 0.5 is not above 0.5
    assert auroc(cases)[0] == 1
    assert np.isnan(auroc(cases)[1])  # never present
    assert np.isnan(f1(cases)[1])  # neither present nor seen
