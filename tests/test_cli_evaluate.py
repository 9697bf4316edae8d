"""Train, evaluate and predict, one after the other, as a user does."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from tests.training.make import TINY
from typer.testing import CliRunner, Result

from parsecaps.cli import app
from parsecaps.evaluation.predictions import Predictions
from parsecaps.evaluation.runs import evaluate_run

SMALL = [argument for setting in TINY for argument in ("--set", setting)]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    made = [folder / f"seed-{seed}" for seed in (0, 1)]
    for seed, path in enumerate(made):
        done = run("train", "phantom:n=120,size=32", *SMALL, "--set", f"training.seed={seed}", "--out", path)
        assert done.exit_code == 0, done.output
    return made


def test_scores_of_one_run(runs: list[Path]) -> None:
    result = run("evaluate", runs[0], "--resamples", "50")
    assert result.exit_code == 0, result.output
    stored = json.loads((runs[0] / "scores.json").read_text(encoding="utf-8"))
    (scores,) = stored["runs"].values()
    evaluation = evaluate_run(runs[0], resamples=50)
    right = evaluation.predictions.logits.argmax(1) == evaluation.predictions.label
    assert scores["overall"]["accuracy"]["value"] == pytest.approx(right.mean())
    assert scores["overall"]["accuracy"]["n"] == len(right)
    assert "blue-whitish veil" in result.stdout
    assert "<html" in (runs[0] / "scores.html").read_text(encoding="utf-8")


def test_the_test_part_is_the_runs_own(runs: list[Path]) -> None:
    with (runs[0] / "split.csv").open(encoding="utf-8") as file:
        tested = {row["image"] for row in csv.DictReader(file) if row["split"] == "test"}
    assert set(evaluate_run(runs[0], resamples=20).predictions.name) == tested


def test_two_runs_are_compared(runs: list[Path], tmp_path: Path) -> None:
    page, file = tmp_path / "both.html", tmp_path / "both.json"
    result = run("evaluate", *runs, "--resamples", "50", "--page", page, "--json", file)
    assert result.exit_code == 0, result.output
    (comparison,) = json.loads(file.read_text(encoding="utf-8"))["comparisons"]
    first, second = (evaluate_run(path, resamples=20).predictions for path in runs)
    right = [predictions.logits.argmax(1) == predictions.label for predictions in (first, second)]
    assert comparison["only_first"] == int((right[0] & ~right[1]).sum())
    assert "McNemar" in result.stdout
    assert page.is_file()


def test_other_data_are_matched_by_name(runs: list[Path], tmp_path: Path) -> None:
    file = tmp_path / "other.json"
    result = run("evaluate", runs[0], "--data", "phantom:n=30,size=32,seed=7", "--resamples", "20", "--json", file)
    assert result.exit_code == 0, result.output
    (scores,) = json.loads(file.read_text(encoding="utf-8"))["runs"].values()
    assert scores["overall"]["accuracy"]["n"] == 30


def test_evaluation_leaves_what_prediction_calibrates_by(runs: list[Path]) -> None:
    evaluate_run(runs[0], resamples=20)
    validation = Predictions.load(runs[0] / "bundle" / "calibration.npz")
    with (runs[0] / "split.csv").open(encoding="utf-8") as file:
        chosen = {row["image"] for row in csv.DictReader(file) if row["split"] == "val"}
    assert set(validation.name) == chosen
    assert np.isfinite(validation.logits).all()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["--part", "tset"], "part is 'tset'"), (["--data", "nowhere"], "nowhere is not there")],
)
def test_mistakes_cost_one_line(runs: list[Path], arguments: list[str], reason: str) -> None:
    result = run("evaluate", runs[0], *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert reason in result.stderr


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    result = run("evaluate", tmp_path)
    assert result.exit_code == 2
    assert "config.yaml is missing" in result.stderr
