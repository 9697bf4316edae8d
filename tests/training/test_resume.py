"""A run that was stopped and resumed ends with the same bits as one that was not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from parsecaps.config import load_config
from parsecaps.run import Run
from parsecaps.system.signals import TerminatedError
from parsecaps.training import loop
from parsecaps.training.callbacks import Callbacks, Progress
from parsecaps.training.checkpoint import read_tensors
from tests.messages import LIBRARY, message, refused
from tests.training.make import PHANTOM, TINY, train

SCRIPT = Path(__file__).with_name("kill_and_resume.py")


def same(one: Any, other: Any) -> bool:
    """Equal to the last bit, times aside."""
    if isinstance(one, torch.Tensor):
        return torch.equal(one, other) and one.stride() == other.stride()
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one if key != "seconds")
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def assert_same_run(one: Path, other: Path) -> None:
    mine, theirs = (read_tensors(Run(path).last_checkpoint) for path in (one, other))
    assert [key for key in mine if not same(mine[key], theirs[key])] == []
    first, second = (Run(path).bundle_folder / "model.safetensors" for path in (one, other))
    assert first.read_bytes() == second.read_bytes()


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """Dropout, augmentation, balanced sampling and an average of the weights are all on."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(tmp_path)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["ends"][:3] == [-signal.SIGKILL] * 3
    assert told["ends"].count(-signal.SIGKILL) >= 4  # on a slow machine the last may come too late
    assert told["ends"][3] == 143
    assert told["ends"][-1] == 0
    assert len({tuple(place) for place in told["places"]}) >= 4  # it got on between the kills
    assert any(batch for _, batch in told["places"])  # and was killed within an epoch
    assert_same_run(tmp_path / "whole", tmp_path / "killed")
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == sorted(
        path.name for path in (tmp_path / "whole").iterdir()
    )


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminatedError)])
def test_a_stop_saves_and_says_how_to_go_on(
    number: signal.Signals, raised: type[BaseException], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)
    stopped = tmp_path / "stopped"

    def press(progress: Progress) -> None:
        if (progress.epoch, progress.batch) == (1, 3):
            os.kill(os.getpid(), number)

    before = signal.getsignal(number)
    with refused(KeyboardInterrupt) as error:
        train(load_config(None, PHANTOM), run_folder=stopped, callbacks=Callbacks(progress=press))
    assert error.type is raised
    assert signal.getsignal(number) is before
    assert not Run(stopped).bundle_folder.exists()
    lines: list[str] = []
    train(resume=stopped, callbacks=Callbacks(log=lines.append))
    message(lines[0])
    assert_same_run(run.folder, stopped)
    train(resume=stopped, callbacks=Callbacks(log=lines.append))
    message(lines[-1])


@pytest.mark.parametrize("wanted", ["new", "own"])
def test_sigterm_while_reading_leaves_nothing(wanted: str, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "notes.txt").touch()

    def press(done: int, total: int) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    config = load_config(None, ["data.path=phantom:n=73,size=32", *TINY])
    with refused(TerminatedError):
        train(config, run_folder=tmp_path / wanted, callbacks=Callbacks(reading=press))
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["own", "own/notes.txt"]


def test_a_resumed_run_has_the_threads_it_was_started_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)
    used: list[int] = []

    def stop(progress: Progress) -> None:
        used.append(torch.get_num_threads())
        if len(used) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    torch.set_num_threads(1)
    with pytest.raises(TerminatedError):
        train(load_config(None, PHANTOM), run_folder=tmp_path / "run", callbacks=Callbacks(progress=stop))
    torch.set_num_threads(2)
    lines: list[str] = []
    resumed = train(resume=tmp_path / "run", callbacks=Callbacks(log=lines.append, progress=stop))
    message(lines[0])
    assert set(used) == {1}
    assert (resumed.threads, torch.get_num_threads()) == (1, 2)


def test_what_cannot_be_resumed_is_one_line(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        train(resume=tmp_path)
    with refused(ValueError):
        train()
    settings = ["data.path=phantom:n=72,size=32", *TINY, "training.epochs=1"]
    train(load_config(None, settings), run_folder=tmp_path / "run")
    with refused(ValueError):
        train(load_config(None, settings), run_folder=tmp_path / "run")
    run = Run(tmp_path / "run")
    (run.bundle_folder / "bundle.json").unlink()
    run.bundle_folder.rename(tmp_path / "gone")
    run.last_checkpoint.write_bytes(run.last_checkpoint.read_bytes()[:1000])
    with refused(ValueError, hide=LIBRARY):
        train(resume=tmp_path / "run")
    rows = run.split_file.read_text(encoding="utf-8")
    run.split_file.write_text(rows.replace(",train,", ",val,", 1), encoding="utf-8")
    with refused(ValueError):
        train(resume=tmp_path / "run")


def test_a_run_from_before_there_was_a_choice_of_optimizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings do not name one; it says which to write there, and then goes on."""
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)

    def stop(progress: Progress) -> None:
        if (progress.epoch, progress.batch) == (1, 3):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        train(
            load_config(None, [*PHANTOM, "training.optimizer=adamw"]),
            run_folder=tmp_path / "run",
            callbacks=Callbacks(progress=stop),
        )
    run = Run(tmp_path / "run")
    named = run.config_file.read_text(encoding="utf-8")
    run.config_file.write_text(named.replace("  optimizer: adamw\n", ""), encoding="utf-8")
    with refused(ValueError):
        train(resume=run.folder)
    run.config_file.write_text(named, encoding="utf-8")
    train(resume=run.folder)
    assert run.bundle_folder.is_dir()
