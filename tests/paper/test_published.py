"""The published figures: as printed, by what they say of each other."""

import pytest

from parsecaps.models import all_models
from parsecaps.paper.affine_digits import COLUMNS as AFFNIST
from parsecaps.paper.skin import COLUMNS as SKIN
from parsecaps.paper.skin import LOSSES
from parsecaps.paper.table import published
from parsecaps.paper.tumours import COLUMNS as CLASSIFICATION

COUNTS = {"meningioma": 708, "glioma": 1426, "pituitary": 930}  # slices of CE-MRI


@pytest.mark.parametrize(
    ("model", "accuracy"),
    [
        ("ParseCaps", 98.42),
        ("OrthCaps", 93.86),
        ("DeepCaps", 95.58),
        ("CapsNet", 90.88),
        ("BrainCaps", 94.93),
        ("GoogLeNet", 94.72),
        ("VGG19", 94.84),
    ],
)
def test_recalls_by_class_give_the_accuracies_that_the_remark_has(model: str, accuracy: float) -> None:
    """A digit that was copied wrongly would move the weighted mean."""
    printed = published("classification")
    recalls = {name: printed.figure(model, name, "recall") for name in COUNTS}
    weighted = sum(recalls[name] * COUNTS[name] for name in COUNTS) / sum(COUNTS.values())
    assert weighted == pytest.approx(accuracy, abs=0.01)


def test_macro_means_of_quoted_models_are_those_of_their_classes() -> None:
    printed = published("classification")
    for key, model in (("precision", "GoogLeNet"), ("recall", "GoogLeNet"), ("recall", "VGG19"), ("f1", "VGG19")):
        of_classes = [printed.figure(model, name, key) for name in COUNTS]
        assert printed.figure(model, f"macro_{key}") == pytest.approx(sum(of_classes) / 3, abs=0.15)


@pytest.mark.parametrize(
    ("table", "columns"),
    [("classification", CLASSIFICATION), ("skin", SKIN), ("losses", LOSSES), ("affnist", AFFNIST)],
)
def test_every_published_row_has_a_column_and_says_who_measured_it(table: str, columns: tuple) -> None:
    printed = published(table)
    assert printed.source
    assert set(printed.rows) <= {column.name for column in columns}
    assert all(printed.by(row) for row in printed.rows)
    for column in columns:
        assert column.kind in all_models() or (not column.kind and column.note and column.name in printed.rows), column


def test_what_was_not_printed_is_none() -> None:
    printed = published("classification")
    assert printed.figure("BrainCaps", "macro_specificity") is None
    assert printed.figure("nobody", "accuracy") is None
    assert published("redundancy").rows == {}
