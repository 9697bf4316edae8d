"""Names that look like markup, and names that no encoding can print, through the commands."""

import csv
import json
import os
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from parsecaps.cli import app
from parsecaps.run import Run
from tests.data.make import picture
from tests.training.make import TINY

SMALL = [argument for setting in (*TINY, "training.epochs=1") for argument in ("--set", setting)]
CLASSES, CONCEPT = ("[/b]", "a[red]b"), ":x: [/i]c"


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Classes, patients, files and a concept with brackets, and a run on them in `[b]run`."""
    folder = tmp_path_factory.mktemp("names")
    with (folder / "cases.csv").open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "label", "patient", f"concept:{CONCEPT}"])
        for i in range(24):
            Image.fromarray(picture(i, 32)).save(folder / f"[i]{i}.png")
            table.writerow([f"[i]{i}.png", CLASSES[i % 2], f"[/u]{i // 2 % 2}{i % 2}{i // 4}", i % 3 % 2])
    run("train", folder / "cases.csv", *SMALL, "--out", folder / "[b]run")
    return folder


def test_a_check_prints_names_as_they_are(folder: Path) -> None:
    text = run("data", "check", folder / "cases.csv").stdout
    assert all(f"  {name} " in text for name in (*CLASSES, CONCEPT))
    out = folder / "[b].csv"
    assert f"{out}: train" in run("data", "split", folder / "cases.csv", "--out", out).stdout.replace("\n", "")


def test_scores_print_names_as_they_are(folder: Path) -> None:
    text = run("evaluate", folder / "[b]run", "--resamples", "20").stdout
    assert all(f"  {name} " in text for name in (*CLASSES, CONCEPT))
    assert f"scores: {folder / '[b]run' / 'scores.json'}" in text


def test_explanations_print_names_as_they_are(folder: Path) -> None:
    result = run("explain", folder / "[b]run", folder / "[i]0.png", "--out", folder / "[b].html")
    text = " ".join(result.stdout.split())
    assert f"{CONCEPT} " in text
    assert any(f"0.png: {name}" in text for name in CLASSES)
    assert f": {folder / '[b].html'}" in text


def test_a_prediction_prints_names_as_they_are(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "[b].csv"
    assert f"{out}: 24 new rows" in run("predict", folder / "[b]run", folder / "cases.csv", "--out", out).stdout


def test_names_that_are_not_utf8_can_be_trained_on(tmp_path: Path) -> None:
    """Of files, of a class and of the folder itself; and the run can be opened again."""
    data = tmp_path / "caf\udce9"
    try:
        for i in range(20):
            (data / ("a", "m\udce9lanome")[i % 2]).mkdir(parents=True, exist_ok=True)
            with (data / ("a", "m\udce9lanome")[i % 2] / f"\udcff{i}\r\n.png").open("wb") as file:
                Image.fromarray(picture(i, 32)).save(file, format="PNG")
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    run("data", "check", data, "--page", tmp_path / "check.html", "--json", tmp_path / "check.json")
    trained = Run(tmp_path / "run")
    run("train", data, *SMALL, "--out", trained.folder)
    text = trained.split_file.read_text(encoding="utf-8")
    assert len(text.splitlines()) == 21
    assert "m\\xe9lanome/\\xff1\\x0d\\x0a.png" in text
    assert os.fsencode(trained.config.data.path) == os.fsencode(data)
    assert Run(trained.folder).division.count("train") > 0
    run("train", "--resume", trained.folder)
    assert "m\\udce9lanome" in run("evaluate", trained.folder, "--resamples", "20").stdout
    assert json.loads(trained.data_file.read_text(encoding="utf-8"))["classes"] == ["a", "m\udce9lanome"]
    run("explain", trained.folder, "--limit", "1", "--out", tmp_path / "page.html")
    out = tmp_path / "caf\udce9.csv"
    for rows in (20, 0):
        assert f"{rows} new rows" in run("predict", trained.folder, data, "--out", out).stdout
