"""Answers to all images of a patient together."""

from dataclasses import replace

import numpy as np
import pytest

from parsecaps.metrics.by_patient import joint_probabilities, scores_by_patient
from parsecaps.metrics.scores import score
from parsecaps.prediction.predictions import Predictions
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


def test_values_by_hand() -> None:
    predictions = three_patients()
    joint = joint_probabilities(predictions)
    np.testing.assert_allclose(joint[:, 0], [2.2 / 3] * 3 + [1.35 / 2] * 2 + [0.2])
    np.testing.assert_allclose(joint.sum(1), 1)
    found = scores_by_patient(predictions)
    assert (found["patient_accuracy"].value, found["patient_accuracy"].n) == (pytest.approx(2 / 3), 3)
    assert (found["pooled_accuracy"].value, found["pooled_accuracy"].n) == (pytest.approx(4 / 6), 6)
    assert score(predictions)["accuracy"].value == pytest.approx(4 / 6)  # other images


def test_images_without_a_label_help_to_find_the_answer_and_are_not_counted() -> None:
    predictions = replace(three_patients(), label=np.array([0, -1, -1, 1, 1, -1]))
    found = scores_by_patient(predictions)
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
    found = scores_by_patient(predictions, resamples=2000)
    for key, count in (("patient_accuracy", 40), ("pooled_accuracy", 400)):
        assert (found[key].value, found[key].n) == (pytest.approx(0.8), count)
        assert (found[key].low, found[key].high) == pytest.approx((0.68, 0.92), abs=0.03)


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
    assert scores_by_patient(predictions) == {}
    assert "patient_accuracy" not in score(predictions).single


def test_no_cases_at_all() -> None:
    assert scores_by_patient(make_predictions(6).subset([])) == {}
