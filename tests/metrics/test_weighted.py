"""Weights are copies: the vectorised scores of a resample are those that torchmetrics gives the copied cases."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional import classification as tm

from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.point_scores import class_scores, concept_scores, roc_curve
from parsecaps.metrics.weighted import WeightedAuroc, WeightedClassScores, WeightedConceptScores, macro
from tests.metrics.make import make_predictions


def pairs_won(score: np.ndarray, positive: np.ndarray) -> float:
    """AUROC as it is defined: pair by pair."""
    up, down = score[positive], score[~positive]
    if not len(up) or not len(down):
        return float("nan")
    return float(((up[:, None] > down) + 0.5 * (up[:, None] == down)).mean())


def agree(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], column: int) -> None:
    found = {**found, **{f"mean_{key}": value for key, value in macro(found).items()}}
    wanted = {**wanted, **{f"mean_{key}": value for key, value in macro(wanted).items()}}
    assert found.keys() == wanted.keys() - {"confusion"}
    for key, value in found.items():
        np.testing.assert_allclose(value[..., column], wanted[key], atol=1e-6, rtol=0, err_msg=key)


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(3, 60),
    num_classes=st.integers(2, 5),
    ties=st.booleans(),
    unknown=st.sampled_from([0.0, 0.4]),
)
def test_a_resample_scores_as_its_copies(seed: int, count: int, num_classes: int, ties: bool, unknown: float) -> None:
    predictions = make_predictions(max(count, num_classes), num_classes, seed=seed, ties=ties, unknown=unknown)
    label, presence, concepts = predictions.label, predictions.presence, predictions.concepts
    assert presence is not None
    assert concepts is not None
    rows = np.flatnonzero(label >= 0)
    weights = next(resampled_weights(predictions.groups(), 6, seed))
    classes = WeightedClassScores(predictions.logits[rows], label[rows])(weights[rows])
    with_concepts = WeightedConceptScores(presence, concepts)(weights)
    for column in range(weights.shape[1]):
        copies = np.repeat(np.arange(len(label)), weights[:, column].astype(int))
        labelled = copies[label[copies] >= 0]
        agree(classes, class_scores(predictions.logits[labelled], label[labelled]), column)
        agree(with_concepts, concept_scores(presence[copies], concepts[copies]), column)
        for k in range(num_classes):
            probability = predictions.probabilities()[labelled, k]
            np.testing.assert_allclose(classes["auroc"][k, column], pairs_won(probability, label[labelled] == k))


@pytest.mark.parametrize("num_classes", [2, 4])
def test_values_are_those_of_torchmetrics(num_classes: int) -> None:
    predictions = make_predictions(200, num_classes, unknown=0, ties=False)
    p, y = torch.from_numpy(predictions.probabilities()), torch.from_numpy(predictions.label)
    found = class_scores(predictions.logits, predictions.label)
    wanted = {
        "precision": tm.multiclass_precision(p, y, num_classes, average=None),
        "recall": tm.multiclass_recall(p, y, num_classes, average=None),
        "f1": tm.multiclass_f1_score(p, y, num_classes, average=None),
        "specificity": tm.multiclass_specificity(p, y, num_classes, average=None),
        "auroc": tm.multiclass_auroc(p, y, num_classes, average=None),
        "accuracy": tm.multiclass_accuracy(p, y, num_classes, average="micro"),
        "ece": tm.multiclass_calibration_error(p, y, num_classes, n_bins=15),
        "nll": torch.nn.functional.cross_entropy(torch.from_numpy(predictions.logits), y),
        "brier": ((p - torch.nn.functional.one_hot(y, num_classes)) ** 2).sum(1).mean(),
        "confusion": tm.multiclass_confusion_matrix(p, y, num_classes),
    }
    for key, value in wanted.items():
        np.testing.assert_allclose(found[key], value, atol=1e-6, err_msg=key)
    means = macro(found)
    for key, function in {
        "precision": tm.multiclass_precision,
        "recall": tm.multiclass_accuracy,  # balanced accuracy is the macro recall
        "f1": tm.multiclass_f1_score,
        "specificity": tm.multiclass_specificity,
        "auroc": tm.multiclass_auroc,
    }.items():
        np.testing.assert_allclose(means[key], function(p, y, num_classes, average="macro"), atol=1e-6, err_msg=key)


def test_concepts_by_hand() -> None:
    presence = np.array([[0.9, 0.2], [0.4, 0.6], [0.5, 0.1]])
    concepts = np.array([[1, 0], [0, np.nan], [1, np.nan]])
    found = concept_scores(presence, concepts)
    distances = [np.hypot(0.1, 0.2), 0.4, 0.5]
    assert found["explanation_error_l2"] == pytest.approx(np.mean(distances))
    assert found["explanation_error_l2_squared"] == pytest.approx(np.mean(np.square(distances)))
    assert found["f1"][0] == pytest.approx(2 / 3)  # 0.5 is not above 0.5
    assert found["auroc"][0] == 1
    assert np.isnan(found["auroc"][1])  # never present
    assert np.isnan(found["f1"][1])  # neither present nor seen


def test_ties_count_half() -> None:
    ones = np.ones((5, 1))
    positive = np.array([True, True, False, False, False])
    assert WeightedAuroc(np.full(5, 0.3), positive)(ones) == 0.5
    assert WeightedAuroc(np.array([0.4, 0.1, 0.4, 0.1, 0.0]), positive)(ones) == pytest.approx(4 / 6)


def test_a_class_that_is_never_named_counts_in_macro_precision() -> None:
    logits = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    found = class_scores(logits, np.array([0, 0, 0, 1]))
    assert np.isnan(found["precision"][1])
    assert macro(found)["precision"] == pytest.approx((0.75 + 0) / 2)


def test_confidence_of_exactly_one_is_in_the_last_bin() -> None:
    logits = np.array([[100.0, 0.0], [np.log(0.97 / 0.03), 0.0]])
    found = class_scores(logits, np.array([1, 0]))
    assert found["ece"] == pytest.approx(abs((1 + 0.97) / 2 - 0.5))
    assert WeightedClassScores(logits, np.array([1, 0]))(np.ones((2, 1)))["ece"][0] == pytest.approx(found["ece"])


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
    assert roc_curve(np.array([0.1, 0.2, 0.8, 0.9]), np.array([False, False, True, True])) == [(0, 0), (0, 1), (1, 1)]
