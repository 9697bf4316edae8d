"""The reproduce command, as a user types it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from parsecaps.cli import app
from parsecaps.models import MODELS, find_model
from parsecaps.paper import run_table, slowdown, tables
from parsecaps.paper.listing import BUDGETS, stored_listing
from parsecaps.paper.tables import TABLES, measure_listing
from parsecaps.paper.timing import Effort
from tests.command import fails
from tests.data.make import folder_of_pictures
from tests.data.sources.layouts import write_mnist


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["reproduce", *(str(argument) for argument in arguments)])


@pytest.fixture(autouse=True)
def nothing_at_hand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PARSECAPS_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_table_is_printed_and_written() -> None:
    result = run("classification", "--data", "phantom:n=48,size=32", "--models", "PlainCNN", "--out", "out")
    assert result.exit_code == 0, result.output
    assert "accuracy, %" in result.stdout
    assert result.stdout.splitlines()[-3:] == [
        "out/classification.md",
        "out/classification.json",
        "out/classification.png",
    ]
    assert json.loads(Path("out/classification.json").read_text())["budget"] == "quick"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["clasification"],
        ["leak", "--budget", "our"],
        ["classification", "--models", "ParsCaps", "--data", "phantom"],
        ["classification"],
        ["classification", "--data", "gone"],
        ["classification", "--data", "phantom", "--data", "phantom"],
        ["skin", "--data", "ph2:gone"],
        ["skin", "--data", "pictures"],
        ["routing", "--models", "PlainCNN"],
        ["classification", "--models", "no-such-model", "--data", "phantom"],
        ["affnist", "--data", "mnist:digits"],
        ["affnist", "--data", "phantom"],
        ["discovery", "--data", "phantom:n=40,size=32"],
        ["discovery", "--models", "PlainCNN"],
        ["reconstruction", "--data", "phantom:n=40,size=32"],
    ],
)
def test_mistakes_cost_one_line_before_anything_is_trained(arguments: list[str], tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "pictures", per_class=6, side=32)
    write_mnist(tmp_path / "digits", 20)
    fails("reproduce", *arguments, "--out", "out")
    assert not list(Path().glob("out/cells/*/*/config.yaml"))


def test_a_model_that_cannot_take_the_size_is_refused_before_any_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    class Picky(find_model("PlainCNN")):  # type: ignore[misc]
        @classmethod
        def from_preset(cls, preset: str, **changes: object) -> None:
            raise ValueError(f"image_size is {changes['image_size']}, but Picky needs 50")

    monkeypatch.setitem(MODELS, "Picky", Picky)
    data = ("--data", "phantom:n=48,size=32")
    fails("reproduce", "classification", *data, "--models", "PlainCNN", "--models", "Picky")
    assert not list(Path().rglob("config.yaml"))


def test_the_list_is_read_from_a_table_without_building_a_network() -> None:
    every = run("--list", "--models", "ParseCaps").stdout
    assert all(f"{name}: " in every for name in ("classification", "skin", "affnist", "discovery", "leak"))
    assert "figshare" in run("classification", "--list").stdout
    fails("reproduce", "--list", "--models", "NoSuchNet")
    fails("reproduce", "clasification", "--list")
    listed = "from parsecaps.cli import app; app(['reproduce', '--list'], standalone_mode=False)"
    command = [sys.executable, "-c", f"{listed}; import sys; assert 'torch' not in sys.modules"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(f"{name}: " in done.stdout for name in TABLES)


def test_what_is_listed_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """`python -m parsecaps.paper.tables > src/parsecaps/paper/listing.json` writes the table again."""
    monkeypatch.setattr(tables, "seconds_per_epoch", lambda loads, log: 0.0)
    found = measure_listing(None, (), print)["tables"]
    for each in (found, stored := stored_listing()["tables"]):
        for table in each.values():
            for column in table["columns"].values():
                column |= {budget: column[budget][0] for budget in BUDGETS}  # the cells, without their times
    assert json.loads(json.dumps(found)) == stored


def test_the_list_is_measured_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowdown, "_time_step", lambda config, load: 1e-3)
    result = run("classification", "--list", "--measure", "--models", "PlainCNN")
    assert result.exit_code == 0, result.output
    row = next(line for line in result.stdout.splitlines() if "minutes" in line)
    # 2,450 images, 300 epochs, 1 ms each and three tenths more, by two optimizers
    assert "32 minutes" in row
    assert "figshare" in result.stdout
    assert "timed on" in result.stdout
    assert "timing a step of PlainCNN" in result.stderr
    again = run("classification", "--list", "--measure", "--models", "PlainCNN")
    assert "timing" not in again.stderr


def test_a_training_that_fails_ends_with_1_and_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where no row is its own: the concepts of two networks of which one fails."""

    def refuse(*given: object, **more: object) -> None:
        raise ValueError("no memory is left")

    monkeypatch.setattr(run_table, "fit", refuse)
    folder_of_pictures(tmp_path / "pictures", per_class=6, side=32)
    result = run("discovery", "--data", "pictures", "--out", "out")
    assert result.exit_code == 1
    assert "failed: seed-0: ValueError: no memory is left" in result.stdout
    assert "no memory is left" in Path("out/discovery.md").read_text()


@pytest.mark.parametrize(("table", "model"), [("affnist", "CapsNet"), ("skin", "ProtoCaps")])
def test_a_step_is_really_timed(table: str, model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of models whose losses are about the image that they draw, without and with concepts."""
    config = slowdown._config
    monkeypatch.setattr(slowdown, "_config", lambda load: config(replace(load, size=40)))
    monkeypatch.setattr(slowdown, "_BATCH", 2)
    monkeypatch.setattr(slowdown, "_STEPS", Effort(rounds=1, seconds=0.0, turn=0.0))
    monkeypatch.setenv("PARSECAPS_CACHE", str(tmp_path / "cache"))
    result = run(table, "--list", "--measure", "--models", model)
    assert result.exit_code == 0, result.output
    timings = json.loads((tmp_path / "cache/training-steps.json").read_text())
    assert timings
    for key, (value, _) in timings.items():
        assert model in key
        assert 1e-6 < value < 100


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_closed_pipe_ends_the_list_without_a_word(tmp_path: Path) -> None:
    """As in `parsecaps reproduce --list | head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "parsecaps", "reproduce", "capsules", "--list"]
    try:
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, cwd=tmp_path, check=False)
    finally:
        os.close(writing)
    assert done.stderr == b""


def test_all_tables_of_the_paper_are_there() -> None:
    wanted = "classification skin capsules losses routing affnist redundancy concepts discovery reconstruction leak"
    assert set(TABLES) == {*wanted.split(), "price"}
