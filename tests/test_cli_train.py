"""The train command, as a user types it."""

import json
import os
import signal
from pathlib import Path

import pytest

from parsecaps.cli.progress import describe
from parsecaps.system.signals import TerminatedError
from parsecaps.training.callbacks import Progress
from tests.command import run
from tests.messages import message
from tests.training.make import TINY

SMALL = [argument for setting in TINY for argument in ("--set", setting)]


def test_it_says_what_it_chose_and_where_the_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("train", "phantom:n=72,size=32", *SMALL, "--json", "result.json")
    assert result.exit_code == 0, result.output
    message(result.stderr, containing="model.num_concepts: ")
    assert "epoch 2/2: loss " in result.stderr
    assert "run: runs/phantom-n-72-1" in result.stdout
    assert "test part: 15 images of" in result.stdout
    assert "page: runs/phantom-n-72-1/scores.html" in result.stdout
    stored = json.loads(Path("result.json").read_text(encoding="utf-8"))
    assert (stored["run"], len(stored["history"])) == ("runs/phantom-n-72-1", 2)
    assert stored["config"]["model"]["num_concepts"] == 7
    assert stored["scores"] == json.loads(Path("runs/phantom-n-72-1/scores.json").read_text(encoding="utf-8"))
    again = run("train", "--resume", "runs/phantom-n-72-1")
    assert again.exit_code == 0
    message(again.stderr)
    second = run("train", "--config", "runs/phantom-n-72-1/config.yaml", "--set", "training.epochs=1")
    assert "run: runs/phantom-n-72-2" in second.stdout


def test_folds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(
        "train", "phantom:n=36,size=32", *SMALL, "--set", "training.epochs=1", "--folds", "2", "--json", "cv.json"
    )
    assert done.exit_code == 0, done.output
    message(done.stderr, containing="folds: ")
    stored = json.loads(Path("cv.json").read_text(encoding="utf-8"))
    accuracy = stored["scores"]["overall"]["accuracy"]
    assert accuracy["n"] == 36
    line = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["pooled"])
    assert line.split()[1:3] == ["36", f"{100 * accuracy['value']:.1f}"]
    assert stored["folds"] == ["runs/phantom-n-36-1/fold-1", "runs/phantom-n-36-1/fold-2"]
    again = run("train", "--resume", "runs/phantom-n-36-1")
    message(again.stderr)


def test_a_failure_of_scoring_is_told_and_the_model_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr("parsecaps.evaluation.evaluate_run", broken)
    result = run("train", "phantom:n=36,size=32", *SMALL, "--set", "training.epochs=1", "--out", tmp_path / "run")
    assert result.exit_code == 1
    message(result.stderr, containing="RuntimeError")
    assert f"model: {tmp_path / 'run/bundle'}" in result.stdout


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130), (TerminatedError, 143)])
def test_a_stop_is_no_error(raised: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **named: object) -> None:
        raise raised("stopped in epoch 1, after batch 3; go on with parsecaps train --resume x")

    monkeypatch.setattr("parsecaps.training.fit.fit", stopped)
    result = run("train", "phantom")
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == "stopped in epoch 1, after batch 3; go on with parsecaps train --resume x\n"


def test_of_several_processes_the_first_says_that_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object, **named: object) -> None:
        raise TerminatedError

    monkeypatch.setattr("parsecaps.training.fit.fit", stopped)
    for rank, code, words in (("0", 143, "stopped\n"), ("1", 0, "")):
        monkeypatch.setenv("LOCAL_RANK", rank)
        result = run("train", "phantom")
        assert (result.exit_code, result.stderr) == (code, words)


def test_sigterm_while_scoring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object, **named: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("parsecaps.evaluation.calibrate_run", interrupted)
    result = run("train", "phantom:n=36,size=32", *SMALL, "--set", "training.epochs=1", "--out", tmp_path / "run")
    assert result.exit_code == 143
    message(result.stderr.splitlines()[-1])
    assert (tmp_path / "run/bundle").is_dir()


def test_the_bar_has_the_numbers() -> None:
    now = Progress(2, 9, 30, 81, loss=0.51234, accuracy=0.875, learning_rate=0.0012, seconds_left=3725.2)
    assert describe(now) == "loss 0.5123  accuracy 87.5%  learning rate 1.20e-03  1:02:05 left"
