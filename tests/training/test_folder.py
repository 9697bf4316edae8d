"""A run's folder: of one process from the first moment, closed to other users, and no trace of what never began."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import parsecaps
from parsecaps.config import load_config
from parsecaps.explain.case_memory import remember_run
from parsecaps.files.writing import make_first_free
from parsecaps.system.processes import Processes
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import new_run
from tests.messages import refused
from tests.training.make import PHANTOM, TINY, skewed_manifest, train

CONFIG = load_config(None, [*PHANTOM, "training.epochs=1"])
ALONE = Processes()


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def others_may(folder: Path) -> list[str]:
    found = [folder, *folder.rglob("*")]
    return [f"{path.stat().st_mode & 0o777:o} {path}" for path in found if path.stat().st_mode & 0o077]


def test_the_second_is_refused_while_the_first_still_reads(tmp_path: Path) -> None:
    started: list[str] = []

    def start_another(line: str) -> None:
        if not started:
            with refused(ValueError):
                train(CONFIG, run_folder=tmp_path / "run")
            started.append(line)

    run = train(CONFIG, run_folder=tmp_path / "run", callbacks=Callbacks(log=start_another))
    assert len(started) == 1
    assert run.is_trained


def test_no_two_processes_get_the_same_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with new_run(None, "cases", ALONE) as first, new_run(None, "cases", ALONE) as second:
        assert [str(run.folder) for run in (first, second)] == ["runs/cases-1", "runs/cases-2"]
    assert list(tmp_path.iterdir()) == []
    names = [tmp_path / "at once" / str(i) for i in range(16)]
    with ThreadPoolExecutor(16) as pool:
        made = list(pool.map(lambda _: make_first_free(names)[-1], names))
    assert sorted(made) == sorted(names)


def test_only_what_was_made_is_removed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "mine.json").touch()
    with new_run(own / "deep" / "run", "", ALONE) as run:
        run.split_file.touch()
    with new_run(own, "", ALONE):
        assert (own / ".lock").is_file()
    assert [path.name for path in own.iterdir()] == ["mine.json"]
    with new_run(own / "run", "", ALONE) as run:
        (run.folder / "notes.txt").touch()
    assert [path.name for path in (own / "run").iterdir()] == ["notes.txt"]


def test_a_file_of_the_user_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "split.csv").write_text("mine")
    with refused(ValueError), new_run(tmp_path, "", ALONE):
        pass
    assert (tmp_path / "split.csv").read_text() == "mine"


@pytest.mark.usefixtures("open_umask")
def test_other_users_see_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARSECAPS_CACHE", str(tmp_path / "caches" / "mine"))
    own = tmp_path / "own"
    own.mkdir()
    own.chmod(0o755)
    run = parsecaps.fit(CONFIG, run_folder=own, callbacks=Callbacks())
    remember_run(run.folder)
    assert own.stat().st_mode & 0o777 == 0o755
    assert [path for part in own.iterdir() for path in others_may(part)] == []
    assert others_may(tmp_path / "caches") == []
    cv = parsecaps.cross_validate(CONFIG, folds=2, run_folder=tmp_path / "deep" / "cv", callbacks=Callbacks())
    assert cv.scores is not None
    assert others_may(tmp_path / "deep") == []


def test_images_above_the_table_are_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a relative path to a table whose rows lead out of its folder, and from another folder later."""
    text = skewed_manifest(tmp_path).read_text(encoding="utf-8")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "cases.csv").write_text(text.replace("pictures/", "../pictures/"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    config = load_config(None, ["data.path=tables/cases.csv", *TINY, "training.epochs=1"])
    run = parsecaps.fit(config, run_folder="run", callbacks=Callbacks())
    assert run.failure == ""
    scores = run.scores
    monkeypatch.chdir(tmp_path / "tables")
    assert parsecaps.evaluate("../run") == scores
    (tmp_path / "run" / "bundle").rename(tmp_path / "gone")
    again = parsecaps.fit(resume="../run", callbacks=Callbacks())
    assert again.failure == ""
    assert again.scores == scores
