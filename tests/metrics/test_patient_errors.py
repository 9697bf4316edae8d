from dataclasses import asdict, replace

import numpy as np
import pytest

from parsecaps.metrics.patient_errors import Misread, MisreadPatient, misread
from parsecaps.prediction.predictions import Predictions
from tests.metrics.make import make_predictions


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
    assert misread(five_patients()) == Misread(
        5, 2, 1, [MisreadPatient("ann", 4, 4, "a", "b"), MisreadPatient("bob", 3, 1, "b", "a")]
    )


def test_a_mask_says_which_images_are_meant() -> None:
    wrong = np.zeros(12, dtype=bool)
    wrong[[2, 11]] = True  # the label of the last is not known
    assert misread(five_patients(), wrong) == Misread(1, 1, 1, [MisreadPatient("ann", 4, 1, "a", "c")])


@pytest.mark.parametrize("count", [0, 1, 60])
def test_images_without_patients_have_none(count: int) -> None:
    assert misread(replace(make_predictions(60), patient=[""] * 60).subset(range(count))) is None


def test_no_error_at_all() -> None:
    perfect = make_predictions(60, skill=100.0, unknown=0)
    assert misread(perfect) == Misread(0, 0, 0, [])


def test_the_worst_ten_hold_the_most_and_half_is_the_fewest() -> None:
    predictions = make_predictions(600, skill=0.5, per_patient=6)
    found = misread(predictions)
    assert found is not None
    group = predictions.groups()
    wrong = (predictions.label >= 0) & (predictions.logits.argmax(1) != predictions.label)
    falling = np.sort(np.bincount(group[wrong], minlength=100))[::-1]
    assert [each.wrong for each in found.worst] == falling[:10].tolist()
    assert found.wrong == wrong.sum()
    assert found.patients == (falling > 0).sum()
    assert 2 * falling[: found.half].sum() >= found.wrong > 2 * falling[: found.half - 1].sum()
    assert all(each.truth != each.named and each.wrong <= each.images for each in found.worst)
    assert Misread.from_dict(asdict(found)) == found
