"""The benchmarks on the command line: `python -m benchmarks`, and `parsecaps bench` as a door to it."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks.__main__ import app as benchmarks
from parsecaps.cli import app
from parsecaps.config import load_config
from parsecaps.training import Callbacks
from parsecaps.training.fit import fit
from studies.routes import without_content
from tests.messages import message
from tests.training.make import PHANTOM

ROOT = Path(__file__).parents[2]
NAMES = ("speed", "data", "training", "routes", "routing", "complexity", "explanation", "serving", "house")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["bench", *arguments])


@pytest.mark.parametrize("name", NAMES)
def test_help_of_each_has_an_example(name: str) -> None:
    result = CliRunner().invoke(benchmarks, [name, "--help"])
    assert result.exit_code == 0
    assert f"parsecaps bench {name} " in " ".join(result.stdout.split())
    assert run(name, "--help").exit_code == 0


def test_without_a_name_they_are_listed() -> None:
    for result in (run(), run("--help")):
        assert all(name in result.stdout for name in NAMES)


def test_both_doors_from_another_folder(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": str(ROOT / "src")}
    for command, more in ((["parsecaps", "bench"], paths), (["benchmarks"], {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"})):
        done = subprocess.run(
            [sys.executable, "-m", *command, "routes"],
            cwd=tmp_path,
            env=os.environ | more,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 2
        message(done.stderr)


def test_without_the_source_one_line_says_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("parsecaps.cli.bench"), "_CHECKOUT", tmp_path)
    result = run("speed", "--quick")
    assert (result.exit_code, result.stdout) == (2, "")
    message(result.stderr)


@pytest.mark.parametrize(
    "command",
    [
        "speed --preset tinny",
        "speed --json no/such/folder.json",
        "routes",
        "routes --out o --set training.epoch=3",
        "routes --run . --out o",
        "routes --twin .",
        "house no-such-folder",
    ],
)
def test_a_mistake_costs_one_line(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    message(result.stderr)
    assert list(tmp_path.iterdir()) == []


def test_routes_of_runs_that_are_there(tmp_path: Path) -> None:
    config = load_config(None, [*PHANTOM, "training.epochs=1"])
    for name, each in (("run", config), ("twin", without_content(config))):
        fit(each, run_folder=tmp_path / name, callbacks=Callbacks())
    file = tmp_path / "routes.json"
    result = run("routes", "--run", str(tmp_path / "run"), "--json", str(file))
    assert result.exit_code == 0, result.stderr
    stored = json.loads(file.read_text(encoding="utf-8"))
    assert {"uniform", "of another image", "mean over images", "strongest 4 per parent"} <= set(stored["compared"])
    assert "of another image" in result.stdout
    assert "few patients" in result.stdout
    assert [criterion["holds"] for criterion in stored["criteria"]][1] is None
    assert "not measured" in result.stdout
    result = run("routes", "--run", str(tmp_path / "run"), "--twin", str(tmp_path / "twin"))
    assert result.exit_code == 0, result.stderr
    assert "not measured" not in result.stdout


def test_the_time_of_an_explanation(tmp_path: Path) -> None:
    result = run("explanation", "--turns", "1", "--head", "bottleneck", "--json", str(tmp_path / "time.json"))
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "time.json").read_text(encoding="utf-8"))
    assert stored["seconds"] > 0
    assert f"{stored['seconds']:.3f} s" in result.stdout
