"""Explain and remember, as a user does."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import parsecaps
from parsecaps.cli.output import next_free
from parsecaps.data.sources import open_data
from parsecaps.explain.case_memory import CaseMemory, remember_run
from parsecaps.model import Model
from parsecaps.report.explanation_document import explanation_document
from parsecaps.training.callbacks import Callbacks
from tests.command import fails, run
from tests.explain.make_explained import make_folder, make_model
from tests.messages import message
from tests.report.held_document import held_document


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    make_folder(folder, "bottleneck")
    return folder


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "skin.png"
    data = open_data("phantom:n=2,size=48")
    assert data.draw is not None
    Image.fromarray(np.moveaxis(data.draw([1])[0], 0, -1)).save(path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages without a name go to the folder of the test."""
    monkeypatch.chdir(tmp_path)


def test_a_page_is_left_by_default_and_nothing_is_overwritten(model: Path, image: Path, tmp_path: Path) -> None:
    mine = tmp_path / "explanation.html"
    mine.write_text("mine", encoding="utf-8")
    for name in ("explanation-2.html", "explanation-3.html"):
        result = run("explain", model, image, "--set", "trees=1")
        assert result.exit_code == 0, result.stderr
        assert result.stdout.splitlines()[-1].startswith("open this page (")
        assert result.stdout.splitlines()[-1].endswith(f": {name}")
        (case,) = held_document(tmp_path / name).cases
        assert len(case.trees) == 1
    assert mine.read_text(encoding="utf-8") == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["explanation-2.html", "explanation-3.html", mine.name]
    result = run("explain", model, image, "--out", mine, "--set", "trees=0")  # named: overwritten
    assert result.exit_code == 0, result.stderr
    assert mine.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert next_free(tmp_path / "other") == tmp_path / "other"


def test_explain_writes_overlays_trees_and_numbers(model: Path, image: Path, tmp_path: Path) -> None:
    result = run(
        "explain", model, image, "--files", tmp_path / "why", "--json", tmp_path / "why.json", "--set", "trees=2"
    )
    assert result.exit_code == 0, result.stderr
    explanation = Model.load(model).explain(image, trees=2)
    stored = json.loads((tmp_path / "why.json").read_text(encoding="utf-8"))
    title = f"{model.name}: {explanation.name}"
    assert stored == explanation_document([explanation], title=title).to_dict()
    assert "data:image" not in json.dumps(stored)
    assert '"patient"' not in json.dumps(stored)
    assert f"{explanation.diagnosis} {explanation.probability:.1%}" in " ".join(result.stdout.split())
    assert explanation.reasons is not None
    assert explanation.reasons.sentence() in " ".join(result.stdout.split())
    (folder,) = (tmp_path / "why").iterdir()
    of_folder = json.loads((folder / "explanation.json").read_text(encoding="utf-8"))
    assert of_folder == {**stored, "title": explanation.name}
    names = sorted(path.name for path in folder.iterdir())
    assert sum(name.startswith("concept-") for name in names) == 7
    assert sum(name.endswith(".svg") for name in names) == 2
    assert f"diagnosis-{explanation.diagnosis}.png" in names
    assert "image.png" in names


def test_a_strict_tree_and_traversals(model: Path, image: Path, tmp_path: Path) -> None:
    file, page = tmp_path / "why.json", tmp_path / "why.html"
    result = run("explain", model, image, "--strict", "--traversals", 2, "--json", file, "--out", page)
    assert result.exit_code == 0, result.stderr
    stored = json.loads(file.read_text(encoding="utf-8"))["cases"][0]
    assert [tree["strict"] for tree in stored["trees"]] == [True] * 3
    loaded = Model.load(model)
    assert stored["strict"]["diagnosis"] == loaded.explain(image, trees=0).diagnosis
    printed = " ".join(result.stdout.split())
    assert "Strict tree: " in printed
    message(result.stderr)
    strict = loaded.explain(image, strict=True, trees=0)
    assert stored["probabilities"] == pytest.approx(strict.probabilities)
    (case,) = held_document(page).cases
    assert case.strict is not None
    message(case.strict.lines[0])
    result = run("explain", model, image, "--out", page, "--set", "strict=true", "--set", "trees=0")
    assert result.exit_code == 0, result.stderr
    (case,) = held_document(page).cases
    assert case.strict is not None
    message(case.strict.lines[0])


def test_a_series_of_known_cases_becomes_a_page_and_a_line_each(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "cases.html"
    result = run("explain", model, "phantom:n=20,size=32", "--out", out, "--limit", 3, "--set", "trees=0")
    assert result.exit_code == 0, result.stderr
    cases = held_document(out).cases
    assert [each.name for each in cases] == ["000000", "000010", "000019"]  # spread over all of them
    assert all(each.truth in each.probabilities for each in cases)
    assert result.stdout.count("presence") == 3  # a table for each
    message(result.stderr, containing="--limit")
    result = run("explain", model, "phantom:n=6,size=32", "--out", out, "--set", "trees=0")
    assert result.exit_code == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "(known to be " in line]
    assert [line.partition(":")[0] for line in lines] == [f"{row:06d}" for row in range(6)]
    assert all("; sees " in line for line in lines)
    assert "presence" not in result.stdout
    assert "--limit" not in result.stderr


def test_files_that_are_no_images_cost_a_line(model: Path, image: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.png"
    bad.write_text("no image", encoding="utf-8")
    fails("explain", model, bad)
    out = tmp_path / "page.html"
    result = run("explain", model, bad, image, "--out", out, "--set", "trees=0")
    assert result.exit_code == 0
    assert str(bad) in result.stderr
    assert len(held_document(out).cases) == 1
    result = run("explain", model, image, image, "--out", out, "--set", "trees=0", "--limit", 1)
    assert result.exit_code == 0
    message(result.stderr)
    assert len(held_document(out).cases) == 1


def test_a_plain_cnn_says_what_it_cannot_give(image: Path, tmp_path: Path) -> None:
    make_model(open_data("phantom:n=2,size=32"), "cnn").save(tmp_path)
    result = run("explain", tmp_path, image)
    assert result.exit_code == 0, result.stderr
    message(result.stderr)


def test_a_run_is_remembered_and_explained_on_its_own_test_part(tmp_path: Path) -> None:

    settings = {
        "model.preset": "tiny",
        "model.image_size": 32,
        "model.head": "bottleneck",
        "training.epochs": 1,
    }
    parsecaps.fit("phantom:n=24,size=32", settings=settings, run_folder=tmp_path / "run", callbacks=Callbacks())
    result = run("remember", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    assert "patient ids" in result.stdout
    assert (tmp_path / "run" / "bundle" / "strict.safetensors").is_file()
    everyone = CaseMemory.load(tmp_path / "run" / "known_cases", Model.load(tmp_path / "run"))
    assert len(everyone) > 5
    some = remember_run(tmp_path / "run", limit=5)
    assert len(some) == 5
    names = everyone.predictions.name
    assert (some.predictions.name[0], some.predictions.name[-1]) == (names[0], names[-1])  # spread over all
    out = tmp_path / "page.html"
    result = run("explain", tmp_path / "run", "--out", out, "--limit", 2, "--risk", 0.4)
    assert result.exit_code == 0, result.stderr
    document = held_document(out)
    assert len(document.cases) == 2
    for case in document.cases:
        assert case.similar
        assert all(each.picture and each.name is None for each in case.similar)
    fails("explain", tmp_path / "run", "--out", out, "--limit", 2, "--risk", 0.4, "--strict")
