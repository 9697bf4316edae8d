from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parsecaps.metrics.predictions import Predictions, concatenate
from tests.messages import refused
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
    with refused(FileNotFoundError):
        Predictions.load(tmp_path / "no.npz")
    (tmp_path / "text.npz").write_text("not this")
    np.savez(tmp_path / "other.npz", logits=np.zeros((2, 2)))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "empty.npz").touch()
    for name in ("text.npz", "other.npz", "array.npy", "empty.npz"):
        with refused(ValueError):
            Predictions.load(tmp_path / name)


WRONG: list[dict[str, Any]] = [
    {"logits": np.zeros((60, 2))},
    {"label": np.full(60, 3)},
    {"logits": np.full((60, 3), np.nan)},
    {"presence": np.full((60, 4), 1.5)},
    {"presence": np.full((60, 4), np.nan)},
    {"concepts": np.full((60, 4), 0.5)},
    {"patient": ["one"]},
    {"classes": ("a", "b", "a")},
]


@pytest.mark.parametrize("change", WRONG)
def test_what_cannot_be_is_refused(change: dict[str, Any]) -> None:
    with refused(ValueError):
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
    with refused(ValueError):
        concatenate([first, rest])
    with refused(ValueError):
        concatenate([first, replace(rest, classes=("a", "b", "c"))])
    with refused(ValueError):
        concatenate([first, replace(rest, presence=None)])
    with refused(ValueError):
        concatenate([])


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_is_above_zero(temperature: float) -> None:
    with refused(ValueError):
        make_predictions().tempered(temperature)
