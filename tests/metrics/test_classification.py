"""Torchmetrics and scikit-learn are the oracles; a weight of k is k copies."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sk
from torchmetrics.functional import classification as tm

from parsecaps.metrics import METRICS, Weighted, find_metric
from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.calibration import brier, ece, nll
from parsecaps.metrics.classification import (
    Classification,
    Ranks,
    auroc,
    confusion_matrix,
    f1,
    macro,
    precision,
    recall,
    roc_curve,
    specificity,
)
from parsecaps.metrics.concepts import Concepts
from tests.metrics.make import make_predictions

accuracy = find_metric("accuracy").function
EACH = (precision, recall, f1, specificity, auroc)


def pairs_won(score: np.ndarray, positive: np.ndarray) -> float:
    """AUROC as it is defined: pair by pair."""
    up, down = score[positive], score[~positive]
    if not len(up) or not len(down):
        return float("nan")
    return float(((up[:, None] > down) + 0.5 * (up[:, None] == down)).mean())


def by_sklearn(score: np.ndarray, positive: np.ndarray, answered: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """One yes-or-no question, each case of some weight; NaN where scikit-learn finds nothing to divide by."""
    given = {"sample_weight": weight, "zero_division": np.nan}
    kept = weight > 0
    both = positive[kept].any() and not positive[kept].all()
    return {
        "precision": sk.precision_score(positive, answered, **given),
        "recall": sk.recall_score(positive, answered, **given),
        "specificity": sk.recall_score(~positive, ~answered, **given),
        "f1": sk.f1_score(positive, answered, **given),
        "auroc": sk.roc_auc_score(positive, score, sample_weight=weight) if both else float("nan"),
    }


sizes = {
    "seed": st.integers(0, 10**6),
    "count": st.integers(3, 60),
    "num_classes": st.integers(2, 5),
    "ties": st.booleans(),
    "unknown": st.sampled_from([0.0, 0.4]),
}


@given(**sizes)
def test_a_weight_is_so_many_copies(seed: int, count: int, num_classes: int, ties: bool, unknown: float) -> None:
    """Every metric of the table that is of classes or concepts, in resamples and in what they are resamples of."""
    predictions = make_predictions(max(count, num_classes), num_classes, seed=seed, ties=ties, unknown=unknown)
    weights = next(resampled_weights(predictions.groups(), 6, seed))
    for kind in (Classification, Concepts):
        metrics = [metric for metric in METRICS if metric.cases is kind]
        assert metrics
        whole = kind.of(predictions)
        assert whole is not None
        resampled = Weighted(whole, weights[whole.rows])
        for column in range(weights.shape[1]):
            copies = np.repeat(np.arange(len(predictions)), weights[:, column].astype(int))
            plain = Weighted(kind.of(predictions.subset(copies)))
            for metric in metrics:
                found, wanted = resampled.of(metric.function), plain.of(metric.function)
                np.testing.assert_allclose(found[..., column], wanted[..., 0], atol=1e-12, err_msg=metric.name)


@given(**sizes)
def test_each_class_and_concept_is_that_of_sklearn(
    seed: int, count: int, num_classes: int, ties: bool, unknown: float
) -> None:
    predictions = make_predictions(max(count, num_classes), num_classes, seed=seed, ties=ties, unknown=unknown)
    weights = next(resampled_weights(predictions.groups(), 1, seed))
    for kind in (Classification, Concepts):
        cases = kind.of(predictions)
        assert cases is not None
        weighted = Weighted(cases, weights[cases.rows])
        for c in range(cases.scores.shape[1]):
            rows = cases.known[:, c] & (weighted.weights[:, 0] > 0)
            if not rows.any():
                continue
            columns = (cases.scores[rows, c], cases.positive[rows, c], cases.answered[rows, c])
            wanted = by_sklearn(*columns, weighted.weights[rows, 0])
            for metric in EACH:
                np.testing.assert_allclose(
                    weighted.of(metric)[c, 0], wanted[metric.__name__], atol=1e-9, err_msg=metric.__name__
                )


@pytest.mark.parametrize("num_classes", [2, 4])
def test_values_are_those_of_torchmetrics(num_classes: int) -> None:
    predictions = make_predictions(200, num_classes, unknown=0, ties=False)
    p, y = torch.from_numpy(predictions.probabilities()), torch.from_numpy(predictions.label)
    classification = Classification(predictions.logits, predictions.label)
    cases = Weighted(classification)
    for each, function in {
        precision: tm.multiclass_precision,
        recall: tm.multiclass_recall,
        f1: tm.multiclass_f1_score,
        specificity: tm.multiclass_specificity,
        auroc: tm.multiclass_auroc,
    }.items():
        np.testing.assert_allclose(each(cases)[:, 0], function(p, y, num_classes, average=None), atol=1e-6)
        np.testing.assert_allclose(macro(each)(cases)[0], function(p, y, num_classes, average="macro"), atol=1e-6)
    wanted = {
        accuracy: tm.multiclass_accuracy(p, y, num_classes, average="micro"),
        macro(recall): tm.multiclass_accuracy(p, y, num_classes, average="macro"),  # balanced accuracy
        ece: tm.multiclass_calibration_error(p, y, num_classes, n_bins=15),
        nll: torch.nn.functional.cross_entropy(torch.from_numpy(predictions.logits), y),
        brier: ((p - torch.nn.functional.one_hot(y, num_classes)) ** 2).sum(1).mean(),
    }
    for single, value in wanted.items():
        np.testing.assert_allclose(single(cases)[0], value, atol=1e-6)
    confusion = confusion_matrix(classification.label, classification.named, num_classes)
    assert confusion.tolist() == tm.multiclass_confusion_matrix(p, y, num_classes).tolist()


@pytest.mark.parametrize("num_classes", [2, 4])
def test_single_numbers_are_those_of_sklearn(num_classes: int) -> None:
    predictions = make_predictions(200, num_classes, unknown=0, ties=True)
    probabilities, label, named = predictions.probabilities(), predictions.label, predictions.logits.argmax(1)
    weight = np.random.default_rng(1).integers(3, size=200).astype(float)
    cases = Weighted(Classification(predictions.logits, label), weight[:, None])
    assert accuracy(cases)[0] == pytest.approx(sk.accuracy_score(label, named, sample_weight=weight))
    assert macro(recall)(cases)[0] == pytest.approx(sk.balanced_accuracy_score(label, named, sample_weight=weight))
    assert nll(cases)[0] == pytest.approx(sk.log_loss(label, probabilities, sample_weight=weight))
    squared = sk.brier_score_loss(label, probabilities, sample_weight=weight, scale_by_half=False)
    assert brier(cases)[0] == pytest.approx(squared)
    confusion = confusion_matrix(label, named, num_classes)
    assert confusion.tolist() == sk.confusion_matrix(label, named).tolist()


def test_auroc_is_how_many_pairs_are_won() -> None:
    predictions = make_predictions(80, unknown=0)
    found = auroc(Weighted(Classification(predictions.logits, predictions.label)))[:, 0]
    for k, value in enumerate(found):
        assert value == pytest.approx(pairs_won(predictions.probabilities()[:, k], predictions.label == k))


def test_ties_count_half() -> None:
    ones = np.ones((5, 1))
    positive = np.array([True, True, False, False, False])
    assert Ranks(np.full(5, 0.3), positive, ~positive).auroc(ones) == 0.5
    assert Ranks(np.array([0.4, 0.1, 0.4, 0.1, 0.0]), positive, ~positive).auroc(ones) == pytest.approx(4 / 6)


def test_a_class_that_is_never_named_counts_in_macro_precision() -> None:
    cases = Weighted(Classification(np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), np.array([0, 0, 0, 1])))
    assert np.isnan(precision(cases)[1])
    assert macro(precision)(cases) == pytest.approx((0.75 + 0) / 2)


def test_confidence_of_exactly_one_is_in_the_last_bin() -> None:
    logits = np.array([[100.0, 0.0], [np.log(0.97 / 0.03), 0.0]])
    assert ece(Weighted(Classification(logits, np.array([1, 0])))) == pytest.approx(abs((1 + 0.97) / 2 - 0.5))


def test_the_roc_curve_spans_the_area() -> None:
    random = np.random.default_rng(0)
    positive = random.random(3000) < 0.3
    score = np.clip(random.normal(0.4, 0.1, 3000) + 0.1 * positive, 0, 1)
    curve = roc_curve(score, positive)
    assert curve is not None
    assert (curve[0], curve[-1], len(curve)) == ((0, 0), (1, 1), 200)
    x, y = np.array(curve).T
    assert np.trapezoid(y, x) == pytest.approx(pairs_won(score, positive), abs=2e-3)
    assert roc_curve(score, np.zeros(3000, dtype=bool)) is None
    few = roc_curve(score[:40], positive[:40])
    assert few is not None
    x, y, _ = sk.roc_curve(positive[:40], score[:40])
    assert {(round(a, 4), round(b, 4)) for a, b in zip(x, y, strict=True)} >= set(few)
