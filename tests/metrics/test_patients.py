"""Answers to all images of a patient, and whose images are wrong."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from parsecaps.metrics import Score, score
from parsecaps.metrics.patients import PatientError, PatientErrors, patient_errors, patient_probabilities
from parsecaps.metrics.predictions import Predictions
from tests.metrics.make import make_predictions


def three_patients() -> Predictions:
    """Ann: class 0, two images sure of it and one a little of class 1; bob: class 1, one sure and wrong of two; cid."""
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.95, 0.05], [0.4, 0.6], [0.2, 0.8]])
    return Predictions(
        logits=np.log(probabilities),
        label=np.array([0, 0, 0, 1, 1, 1]),
        patient=["ann", "ann", "ann", "bob", "bob", "cid"],
        name=[f"image {i}" for i in range(6)],
        classes=("a", "b"),
    )


def by_patient(predictions: Predictions, resamples: int = 1000) -> dict[str, Score]:
    scores = score(predictions, resamples=resamples).overall
    return {key: scores[key] for key in ("patient_accuracy", "pooled_accuracy") if key in scores}


def test_values_by_hand() -> None:
    predictions = three_patients()
    joint = patient_probabilities(predictions)
    np.testing.assert_allclose(joint[:, 0], [2.2 / 3] * 3 + [1.35 / 2] * 2 + [0.2])
    np.testing.assert_allclose(joint.sum(1), 1)
    found = by_patient(predictions)
    assert (found["patient_accuracy"].value, found["patient_accuracy"].n) == (pytest.approx(2 / 3), 3)
    assert (found["pooled_accuracy"].value, found["pooled_accuracy"].n) == (pytest.approx(4 / 6), 6)
    assert score(predictions)["accuracy"].value == pytest.approx(4 / 6)  # other images


def test_images_without_a_label_help_to_find_the_answer_and_are_not_counted() -> None:
    predictions = replace(three_patients(), label=np.array([0, -1, -1, 1, 1, -1]))
    found = by_patient(predictions)
    assert (found["patient_accuracy"].value, found["patient_accuracy"].n) == (0.5, 2)
    assert (found["pooled_accuracy"].value, found["pooled_accuracy"].n) == (pytest.approx(1 / 3), 3)


def test_the_interval_is_over_patients() -> None:
    """Forty patients of ten images each, a fifth read wrongly as a whole: as wide as that of forty images."""
    right = np.repeat(np.arange(40) % 5 > 0, 10)
    predictions = Predictions(
        logits=np.where(right[:, None], [1.0, 0.0], [0.0, 1.0]),
        label=np.zeros(400),
        patient=[str(i // 10) for i in range(400)],
        name=[str(i) for i in range(400)],
        classes=("a", "b"),
    )
    found = by_patient(predictions, resamples=2000)
    for key, count in (("patient_accuracy", 40), ("pooled_accuracy", 400)):
        assert (found[key].value, found[key].n) == (pytest.approx(0.8), count)
        wilson = stats.binomtest(32, 40).proportion_ci(0.95, "wilson")
        assert (found[key].low, found[key].high) == pytest.approx((wilson.low, wilson.high), abs=0.015)


def test_only_patients_with_a_label_are_resampled() -> None:
    """Patients of whom nothing is known change nothing but the answer to themselves."""
    random = np.random.default_rng(0)
    whole = Predictions(
        logits=random.normal(size=(120, 2)),
        label=np.arange(120) // 3 % 2,
        patient=[f"{i // 3}" for i in range(120)],
        name=[f"{i}" for i in range(120)],
        classes=("a", "b"),
    )
    label = np.where(np.arange(120) // 3 % 4 == 2, -1, whole.label)
    assert by_patient(replace(whole, label=label)) == by_patient(whole.subset(np.flatnonzero(label >= 0)))


@pytest.mark.parametrize(
    "changed",
    [
        {"patient": [""] * 6},  # nobody has several images
        {"label": np.array([0, 1, 0, 1, 1, 1])},  # ann has two classes
        {"label": np.full(6, -1)},
    ],
    ids=["alone", "two classes", "no labels"],
)
def test_there_is_nothing_to_read_together(changed: dict[str, object]) -> None:
    predictions = replace(three_patients(), **changed)  # type: ignore[arg-type]
    assert by_patient(predictions) == {}


def test_no_cases_at_all() -> None:
    assert by_patient(make_predictions(6).subset([])) == {}


def five_patients() -> Predictions:
    """Classes a, b, c; ann: 4 images of a, all named b or c; bob: 3, one wrong; cid, dan: 2, right; one unknown."""
    label = np.array([0] * 4 + [1] * 3 + [2] * 2 + [0] * 2 + [-1])
    named = np.array([1, 1, 2, 1] + [1, 1, 0] + [2] * 2 + [0] * 2 + [1])
    return Predictions(
        logits=np.eye(3)[named],
        label=label,
        patient=["ann"] * 4 + ["bob"] * 3 + ["cid"] * 2 + ["dan"] * 2 + ["eve"],
        name=[f"image {i}" for i in range(12)],
        classes=("a", "b", "c"),
    )


def test_errors_by_hand() -> None:
    assert patient_errors(five_patients()) == PatientErrors(
        5, 2, 1, [PatientError("ann", 4, 4, "a", "b"), PatientError("bob", 3, 1, "b", "a")]
    )


def test_a_mask_says_which_images_are_meant() -> None:
    wrong = np.zeros(12, dtype=bool)
    wrong[[2, 11]] = True  # the label of the last is not known
    assert patient_errors(five_patients(), wrong) == PatientErrors(1, 1, 1, [PatientError("ann", 4, 1, "a", "c")])


@pytest.mark.parametrize("count", [0, 1, 60])
def test_images_without_patients_have_none(count: int) -> None:
    assert patient_errors(replace(make_predictions(60), patient=[""] * 60).subset(range(count))) is None


def test_no_error_at_all() -> None:
    perfect = make_predictions(60, skill=100.0, unknown=0)
    assert patient_errors(perfect) == PatientErrors(0, 0, 0, [])


def test_the_worst_ten_hold_the_most_and_half_is_the_fewest() -> None:
    predictions = make_predictions(600, skill=0.5, per_patient=6)
    found = patient_errors(predictions)
    assert found is not None
    group = predictions.groups()
    wrong = (predictions.label >= 0) & (predictions.logits.argmax(1) != predictions.label)
    falling = np.sort(np.bincount(group[wrong], minlength=100))[::-1]
    assert [each.wrong for each in found.worst] == falling[:10].tolist()
    assert found.wrong == wrong.sum()
    assert found.patients == (falling > 0).sum()
    assert 2 * falling[: found.half].sum() >= found.wrong > 2 * falling[: found.half - 1].sum()
    assert all(each.truth != each.named and each.wrong <= each.images for each in found.worst)
