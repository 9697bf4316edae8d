"""A run is resumed on the data it was started with, and on no others."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

import parsecaps
from parsecaps.config import load_config
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of, split_hash
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from tests.data.make import picture
from tests.messages import message, refused
from tests.training.make import TINY, skewed_manifest, train


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with data and a run on them that has its checkpoint, but no model yet."""
    folder = tmp_path_factory.mktemp("trained")
    settings = [f"data.path={skewed_manifest(folder)}", *TINY, "training.epochs=1"]
    shutil.rmtree(train(load_config(None, settings), run_folder=folder / "run").bundle_folder)
    return folder


@pytest.fixture
def stopped(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, beside a copy of its data."""
    monkeypatch.setenv("PARSECAPS_CACHE", str(tmp_path / "cache"))
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace(str(trained), str(tmp_path)), encoding="utf-8")
    return config.parent


def change_table(root: Path, old: str, new: str) -> None:
    path = root / "cases.csv"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def test_the_same_data_are_taken(stopped: Path) -> None:
    train(resume=stopped)
    assert Run(stopped).is_trained


def test_other_pixels_are_refused(stopped: Path, tmp_path: Path) -> None:
    Image.fromarray(picture(77, 32)).save(tmp_path / "pictures" / "a" / "3.png")
    with refused(ValueError):
        train(resume=stopped)


def test_other_concepts_are_refused(stopped: Path, tmp_path: Path) -> None:
    text = (tmp_path / "cases.csv").read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.endswith((",0,0", ",1,0")))
    change_table(tmp_path, row, row[:-1] + "1")
    with refused(ValueError):
        train(resume=stopped)


def test_what_was_added_or_taken_away_is_named(stopped: Path, tmp_path: Path) -> None:
    """New cases stop a training that goes on, but not the scores of a run."""
    data = open_data(str(tmp_path / "cases.csv"))
    before = Run(stopped).division
    shutil.copy(tmp_path / "pictures" / "b" / "13.png", tmp_path / "pictures" / "b" / "new.png")
    change_table(tmp_path, "pictures/a/0.png", "pictures/b/new.png,b,new,,\npictures/a/0.png")
    with refused(ValueError):
        train(resume=stopped)
    grown = open_data(str(tmp_path / "cases.csv"))
    after = Run(stopped).division
    assert len(after) == len(before) + 1
    assert [data.cases[i].image for i in rows_of(before, "test")] == [
        grown.cases[i].image for i in rows_of(after, "test")
    ]
    change_table(tmp_path, "pictures/a/3.png", "pictures/b/20.png")
    with refused(ValueError):
        _ = Run(stopped).division


def test_scores_on_images_that_trained_say_so(stopped: Path, tmp_path: Path) -> None:
    train(resume=stopped)
    path = tmp_path / "cases.csv"
    trained = rows_of(Run(stopped).division, "train")
    notes = parsecaps.evaluate(stopped, data=str(path), resamples=0).notes
    message(*notes, containing="among those")
    assert any(note.startswith(f"{len(trained)} ") for note in notes)
    assert not any("among those" in note for note in parsecaps.evaluate(stopped, resamples=0).notes)


def test_every_note_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the split come last, after however many the source has."""
    notes = [f"note {i}" for i in range(8)]
    data = replace(open_data(str(skewed_manifest(tmp_path))), notes=notes)
    named = [replace(case, split="test" if case.patient in ("a0", "b0") else None) for case in data.cases]
    monkeypatch.setattr("parsecaps.training.plan.open_all", lambda *arguments: replace(data, cases=named))
    lines: list[str] = []
    config = load_config(None, ["data.path=anywhere", *TINY, "training.epochs=1"])
    run = train(config, run_folder=tmp_path / "run", callbacks=Callbacks(log=lines.append))
    assert lines[:8] == [f"note: {note}" for note in notes]
    message(lines[8])
    assert run.about["unused"] == {}


def test_the_split_that_is_told_is_the_one_without_bad_files(tmp_path: Path) -> None:
    cases = skewed_manifest(tmp_path)
    (tmp_path / "pictures" / "a" / "5.png").write_bytes(b"no image")
    settings = [f"data.path={cases}", *TINY, "training.epochs=1", "data.skip_bad=true"]
    run = train(load_config(None, settings), run_folder=tmp_path / "run")
    about = run.about
    data = open_data(str(cases))
    division = run.division
    assert split_hash(data, division) == about["split_hash"]
    counts = ", ".join(f"{part} {division.count(part)}" for part in ("train", "val", "test"))
    assert about["choices"][0] == f"split: {counts}, unused 1 (cannot be read) (by patient, hash {about['split_hash']})"
    assert about["unused"] == run.data_check["unused"] == {"cannot be read": 1}
    assert sum(part is not None for part in division) == 41
