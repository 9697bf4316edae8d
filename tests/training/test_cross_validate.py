"""Cross-validation: everybody is tested once, by a model that never saw them; and it can be stopped anywhere."""

import json
import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import parsecaps
from parsecaps.config import DataSection
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.sources import open_data
from parsecaps.data.splits import fold_divisions
from parsecaps.evaluation import evaluate_run
from parsecaps.run import Run
from parsecaps.system.signals import TerminatedError
from parsecaps.training import loop
from parsecaps.training.callbacks import Callbacks, Progress
from tests.messages import message, refused

SETTINGS = {"model.preset": "tiny", "training.epochs": 1, "training.batch_size": 8}
DATA = "phantom:n=60,size=32"
QUIET = Callbacks()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("cv") / "whole"
    return parsecaps.cross_validate(DATA, folds=3, settings=SETTINGS, run_folder=folder, callbacks=QUIET)


def test_every_patient_is_tested_once_and_never_by_a_model_that_saw_them(whole: Run) -> None:
    data, tested = open_data(DATA), list[int]()
    for run in whole.folds:
        division = run.division
        patients = {
            part: {c.patient for c, p in zip(data.cases, division, strict=True) if p == part} for part in division
        }
        assert set(patients) == {"train", "val", "test"}
        assert not patients["test"] & (patients["train"] | patients["val"])
        assert not patients["val"] & patients["train"]
        tested += [i for i, part in enumerate(division) if part == "test"]
    assert sorted(tested) == list(range(len(data)))


def test_the_pooled_scores_are_those_of_all_cases(whole: Run) -> None:
    parts = [evaluate_run(run.folder) for run in whole.folds]
    right = np.concatenate([part.predictions.logits.argmax(1) == part.predictions.label for part in parts])
    assert whole.scores["accuracy"].value == pytest.approx(right.mean())
    assert (whole.scores["accuracy"].n, whole.scores.patients) == (60, len({c.patient for c in open_data(DATA).cases}))
    logits = np.concatenate([part.predictions.logits for part in parts])  # tempered, each fold by its own
    label = np.concatenate([part.predictions.label for part in parts])
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert whole.scores["nll"].value == pytest.approx(-np.log(shares[np.arange(60), label]).mean())
    each = [part.scores["accuracy"].value for part in parts]
    over = whole.scores.over_folds["accuracy"]
    assert (over.mean, over.std, over.folds) == pytest.approx((np.mean(each), np.std(each, ddof=1), 3))
    assert [fold.temperature for fold in whole.scores.folds] == [part.scores.temperature for part in parts]
    for risk, measured in zip((0.05, 0.1, 0.2), whole.scores.sets, strict=True):
        inside = np.concatenate([part.sets[risk].inside for part in parts])
        assert measured["coverage"].value == pytest.approx(inside[np.arange(60), label].mean())


def test_the_folder_shows_the_result(whole: Run) -> None:
    stored = json.loads(whole.scores_file.read_text(encoding="utf-8"))
    assert stored["overall"]["accuracy"]["value"] == whole.scores["accuracy"].value
    assert stored["over_folds"]["accuracy"]["folds"] == 3
    page = whole.page_file.read_text(encoding="utf-8")
    assert all(f"fold-{i}" in page for i in (1, 2, 3))
    assert "± " in page
    for i, run in enumerate(whole.folds, 1):
        assert f"Fold {i} of 3" in run.card_file.read_text(encoding="utf-8")
        assert run.scores_file.is_file()
    assert "pooled" in repr(whole)
    assert parsecaps.evaluate(whole) == whole.scores


def test_folds_may_be_trained_one_by_one(whole: Run, tmp_path: Path) -> None:
    settings = {**SETTINGS, "data.folds": 3, "data.fold": 2}
    alone = parsecaps.fit(DATA, settings=settings, run_folder=tmp_path / "cv/fold-2", callbacks=QUIET)
    assert alone.scores == whole.folds[1].scores
    for name in ("fold-1", "fold-3"):
        shutil.copytree(whole.folder / name, tmp_path / "cv" / name)
    with refused(ValueError):
        parsecaps.cross_validate(
            DATA, folds=3, settings={**SETTINGS, "training.epochs": 2}, run_folder=tmp_path / "cv", callbacks=QUIET
        )
    with refused(ValueError):
        parsecaps.cross_validate(
            DATA, folds=3, settings={**SETTINGS, "augmentation": None}, run_folder=tmp_path / "cv", callbacks=QUIET
        )
    lines: list[str] = []
    together = parsecaps.cross_validate(
        DATA, folds=3, settings=SETTINGS, run_folder=tmp_path / "cv", callbacks=Callbacks(log=lines.append)
    )
    assert together.scores == whole.scores
    assert not any(line.startswith("fold ") for line in lines)


def test_stopped_and_resumed_it_ends_with_the_same_bits(
    whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)
    folder, fold = tmp_path / "stopped", [0]

    def note(line: str) -> None:
        fold[0] += line.startswith("fold ")
        if line == "fold 3 of 3":
            raise RuntimeError("the power went")

    def press(progress: Progress) -> None:
        if fold[0] == 2 and progress.batch == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with refused(TerminatedError):
        parsecaps.cross_validate(
            DATA, folds=3, settings=SETTINGS, run_folder=folder, callbacks=Callbacks(log=note, progress=press)
        )
    assert not (folder / "fold-2/bundle").exists()
    with pytest.raises(RuntimeError, match="the power went"):
        parsecaps.cross_validate(resume=folder, callbacks=Callbacks(log=note))
    lines: list[str] = []
    resumed = parsecaps.cross_validate(resume=folder, callbacks=Callbacks(log=lines.append))
    message(lines[0])
    for mine, theirs in zip(whole.folds, resumed.folds, strict=True):
        first, second = (run.bundle_folder / "model.safetensors" for run in (mine, theirs))
        assert first.read_bytes() == second.read_bytes()
    assert resumed.scores == whole.scores
    parsecaps.cross_validate(resume=folder, callbacks=Callbacks(log=lines.append))
    message(lines[-1])


def test_one_process_has_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the data are read, and while it goes on; and what is refused leaves nothing."""
    monkeypatch.chdir(tmp_path)

    def start_another(line: str) -> None:
        for arguments in ({"run_folder": "cv"}, {"resume": "cv"}):
            with refused((ValueError, FileNotFoundError)):
                parsecaps.cross_validate(None if "resume" in arguments else DATA, callbacks=QUIET, **arguments)
        raise RuntimeError("the power went")

    with pytest.raises(RuntimeError, match="the power went"):
        parsecaps.cross_validate(
            DATA, folds=3, settings=SETTINGS, run_folder="cv", callbacks=Callbacks(log=start_another)
        )
    assert list(tmp_path.iterdir()) == []
    with refused(ValueError):
        parsecaps.cross_validate(
            DATA, folds=3, settings={**SETTINGS, "model.settings": {"dropot": 1}}, run_folder="a/cv", callbacks=QUIET
        )
    assert list(tmp_path.iterdir()) == []


def test_the_authors_folds_are_used_where_there_are_as_many() -> None:
    cases = [Case(Path(f"{i}.png"), i % 2, f"p{i // 2}", fold=7 + (i // 2) % 3) for i in range(24)]
    data = DataSet("films", Path(), ("a", "b"), (), cases)
    divisions, whose = fold_divisions(DataSection(folds=3), data)
    assert whose == "the author's folds"
    for fold, (division, *_) in zip((7, 8, 9), divisions, strict=True):
        assert {c.fold for c, part in zip(cases, division, strict=True) if part == "test"} == {fold}
        assert fold not in {c.fold for c, part in zip(cases, division, strict=True) if part in ("train", "val")}
    divisions, whose = fold_divisions(DataSection(folds=4, seed=5), data)
    assert len(divisions) == 4
    message(whose)
    official = replace(data, cases=[replace(case, fold=None, split="train") for case in cases])
    message(fold_divisions(DataSection(folds=3), official)[1])


@pytest.mark.parametrize(
    "settings",
    [{"training.devices": 2}, {"data.test_fold": [1]}, {"model.settings.dropot": 0}, {"model.preset": "huge"}],
)
def test_wrong_settings_leave_no_folder(settings: dict[str, object], tmp_path: Path) -> None:
    with refused(ValueError):
        parsecaps.cross_validate(
            DATA, folds=3, settings={**SETTINGS, **settings}, run_folder=tmp_path / "run", callbacks=QUIET
        )
    assert not (tmp_path / "run").exists()


def test_what_needs_one_model_names_the_folds(whole: Run) -> None:
    with refused(ValueError):
        parsecaps.load(whole)
    with refused(ValueError):
        parsecaps.evaluate(whole, part="val")
    assert parsecaps.load(whole.folder / "fold-2").classes == ("nevus", "melanoma")
    with refused(ValueError):
        parsecaps.fit(whole.config)
    with refused(ValueError):
        parsecaps.fit(whole.config, settings={"data.fold": 4})
    with refused(ValueError):
        parsecaps.cross_validate(resume=whole.folds[0].folder)
