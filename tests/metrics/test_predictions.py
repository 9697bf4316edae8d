from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsecaps.metrics.predictions import Predictions, concatenate
from tests.metrics.make import make_predictions


def same(a: Predictions, b: Predictions) -> bool:
    arrays = all(
        np.array_equal(getattr(a, field), getattr(b, field), equal_nan=True)
        for field in ("logits", "label", "presence", "concepts", "consistency")
        if getattr(a, field) is not None or getattr(b, field) is not None
    )
    names = ("patient", "name", "classes", "concept_names")
    return arrays and all(list(getattr(a, field)) == list(getattr(b, field)) for field in names)


@pytest.mark.parametrize("with_concepts", [True, False])
def test_what_is_saved_comes_back(tmp_path: Path, with_concepts: bool) -> None:
    saved = replace(make_predictions(ties=False), name=[f"Ärzte/日本 {i}.png" for i in range(60)])
    if not with_concepts:
        saved = replace(saved, presence=None, concepts=None, concept_names=())
    saved.save(tmp_path / "test.npz")
    loaded = Predictions.load(tmp_path / "test.npz")
    assert same(saved, loaded)
    assert (loaded.presence is None) is not with_concepts
    assert [path.name for path in tmp_path.iterdir()] == ["test.npz"]


def test_the_consistency_of_views_comes_back(tmp_path: Path) -> None:
    saved = replace(make_predictions(), consistency=np.arange(60) / 60)
    saved.save(tmp_path / "new.npz")
    assert same(Predictions.load(tmp_path / "new.npz"), saved)


def test_no_cases_are_predictions_too(tmp_path: Path) -> None:
    nothing = make_predictions().subset([])
    nothing.save(tmp_path / "none.npz")
    assert len(Predictions.load(tmp_path / "none.npz")) == 0


def test_the_file_holds_no_pickle(tmp_path: Path) -> None:
    make_predictions().save(tmp_path / "test.npz")
    with np.load(tmp_path / "test.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype != object for name in stored)


def test_files_that_are_something_else(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.npz is missing"):
        Predictions.load(tmp_path / "no.npz")
    (tmp_path / "text.npz").write_text("not this")
    np.savez(tmp_path / "other.npz", logits=np.zeros((2, 2)))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "empty.npz").touch()
    for name in ("text.npz", "other.npz", "array.npy", "empty.npz"):
        with pytest.raises(ValueError, match=f"{name} is not a file of predictions"):
            Predictions.load(tmp_path / name)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"logits": np.zeros((60, 2))}, r"logits has the shape \(60, 2\); \(60, 3\) is wanted"),
    ({"label": np.full(60, 3)}, "label of image 0 is not from -1 to 2: 3"),
    ({"logits": np.full((60, 3), np.nan)}, "logits of image 0 are not finite"),
    ({"presence": np.full((60, 4), 1.5)}, "presence of image 0 is not within 0 and 1"),
    ({"presence": np.full((60, 4), np.nan)}, "presence of image 0 is not within 0 and 1"),
    ({"concepts": np.full((60, 4), 0.5)}, "concepts of image 0 are not 0, 1 or NaN"),
    ({"patient": ["one"]}, "1 patients for 60 cases"),
    ({"classes": ("a", "b", "a")}, "classes has 'a' twice"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_what_cannot_be_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(make_predictions(), **change)


def test_patients_are_numbered_and_blank_ones_stand_alone() -> None:
    predictions = replace(make_predictions(6), patient=["b", "", "a", "b", "", "a"])
    assert predictions.groups().tolist() == [0, 1, 2, 0, 3, 2]


def test_folds_are_pooled_with_their_own_temperatures() -> None:
    whole = make_predictions()
    parts = [whole.subset(range(20)), whole.subset(range(20, 60)).tempered(2)]
    pooled = concatenate(parts)
    assert pooled.name == whole.name
    assert np.array_equal(pooled.logits[:20], whole.logits[:20])
    assert np.array_equal(pooled.logits[20:], whole.logits[20:] / 2)
    assert same(concatenate([whole.subset(range(20)), whole.subset(range(20, 60))]), whole)


def test_what_cannot_be_pooled_is_named() -> None:
    whole = make_predictions()
    first, rest = whole.subset(range(20)), whole.subset(range(19, 60))
    with pytest.raises(ValueError, match="image 19 is in two of the predictions"):
        concatenate([first, rest])
    with pytest.raises(ValueError, match="classes differ"):
        concatenate([first, replace(rest, classes=("a", "b", "c"))])
    with pytest.raises(ValueError, match="only some of the predictions have presence"):
        concatenate([first, replace(rest, presence=None)])
    with pytest.raises(ValueError, match="no predictions"):
        concatenate([])


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with pytest.raises(ValueError, match="give a number above 0"):
        make_predictions().tempered(temperature)
