"""Long work: what a log gets of it, what a terminal shows, and the threads it takes on a busy machine."""

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner, Result

from parsecaps.cli import app, progress
from parsecaps.cli.progress import free_threads, showing_stages, showing_training
from parsecaps.system import threads
from parsecaps.training.callbacks import Progress
from tests.training.make import TINY

SMALL = [argument for setting in (*TINY, "training.epochs=1") for argument in ("--set", setting)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What the time is; a test moves it."""
    now = [1000.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_log_gets_a_line_now_and_then(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with showing_stages() as show:
        for done in range(101):
            show("predicting", done, None, f"{done} errors")
            clock[0] += 1
        show("reading", 5, 10)
    assert capsys.readouterr().err.splitlines() == [
        "predicting: 30; 30 errors",
        "predicting: 60; 60 errors",
        "predicting: 90; 90 errors",
    ]


def test_a_training_log_has_no_more_lines_than_needed(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with showing_training() as callbacks:
        for done in range(1, 41):
            callbacks.reading(done, 40)
            clock[0] += 1
        callbacks.log("epoch 1/2: loss 0.5")
        for batch in range(1, 36):
            clock[0] += 1
            callbacks.progress(Progress(2, 2, batch, 35, 0.25, 0.5, 1e-3, 61.0))
        callbacks.scoring(1, 2)
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["reading images: 31 of 40", "epoch 1/2: loss 0.5"]
    assert lines[2:] == ["epoch 2/2: 30 of 35; loss 0.2500  accuracy 50.0%  learning rate 1.00e-03  0:01:01 left"]


def test_a_terminal_gets_a_bar_and_names_are_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    screen = Console(file=written, force_terminal=True, width=100, color_system=None)
    monkeypatch.setattr(progress, "console", lambda *, stderr=False: screen)
    with showing_stages() as show:
        for done in (0, 3):
            show("reading [red]a[/b].png", done, 4)
        show("predicting", 7, None)
    text = written.getvalue()
    assert "reading [red]a[/b].png" in text
    assert "━" in text


def test_only_one_of_several_processes_is_seen(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with showing_stages(visible=False) as show:
        clock[0] += 100
        show("predicting", 1, 2)
    assert capsys.readouterr().err == ""


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of eight cores, six of which others use."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(threads, "allowed_cores", lambda: 8)
    monkeypatch.setattr(threads, "busy_cores", lambda: 6.0)
    monkeypatch.setattr(threads, "_quotas", lambda root: [])
    torch.set_num_threads(8)


LINE = "threads: 2 (6.0 of 8 cores are in use by others)"


@pytest.mark.usefixtures("busy")
def test_a_busy_machine_is_noticed_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    with free_threads():
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 8
    assert capsys.readouterr().err.splitlines() == [LINE]


def test_a_free_machine_is_not_worth_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with free_threads():
        pass
    assert capsys.readouterr().err == ""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    done = CliRunner().invoke(app, ["train", "phantom:n=72,size=32", *SMALL, "--out", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def used(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exit_code == 0, done.output
    return done


@pytest.mark.usefixtures("busy")
def test_the_commands_take_the_free_cores_and_log_how_far_they_are(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time between two lines, each of them has some."""
    from PIL import Image

    from tests.data.make import picture

    monkeypatch.setattr(progress, "LOG_SECONDS", 0.0)
    image = tmp_path / "image.png"
    Image.fromarray(picture(0, 32)).save(image)
    for stage, arguments in {
        "predicting: 1; 1 images, 0 errors": ("predict", trained, image, "--out", tmp_path / "answers.csv"),
        f"predicting as {trained}: ": ("evaluate", trained, "--resamples", 10),
        "explaining: 1 of 1": ("explain", trained, image, "--out", tmp_path / "page.html"),
        "looking at the training cases: ": ("remember", trained),
    }.items():
        lines = used(*arguments).stderr.splitlines()
        assert lines[0] == LINE, arguments
        assert any(line.startswith(stage) for line in lines[1:]), lines
    assert torch.get_num_threads() == 8
