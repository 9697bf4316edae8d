"""The demonstration, as short as it can be; `studies/training_examples.md` has what the whole one reaches."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import parsecaps
from parsecaps.cli import app
from parsecaps.cli.demo import FOLDER
from parsecaps.config import load_config
from parsecaps.system.signals import TerminatedError
from tests.browser import needs_browser, page
from tests.command import fails
from tests.report.held_document import held_document

SHORT = (
    "data.path=phantom:n=240,size=32",
    "model.preset=tiny",
    "model.image_size=32",
    "model.settings={}",
    "training.epochs=1",
)
SETTINGS = [part for each in SHORT for part in ("--set", each)]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here") / "demo"
    result = CliRunner().invoke(
        app, ["demo", "--out", str(folder), "--json", str(folder.parent / "demo.json"), *SETTINGS]
    )
    assert result.exit_code == 0, result.output
    assert f"open this first: {folder / 'index.html'}" in result.output
    assert f"images to try it on: parsecaps explain {folder / 'run'} {folder / 'images'}" in result.output
    return folder


def test_the_shipped_settings_are_those_that_are_run() -> None:
    assert load_config("demo").data.path == "phantom:n=7200,size=64"
    assert load_config("demo-quick").data.path == "phantom:n=2000,size=32"
    fails("demo", "--quick", "--config", "demo")


def test_everything_is_left_behind(demo: Path) -> None:
    stored = json.loads((demo.parent / "demo.json").read_text(encoding="utf-8"))
    assert stored["run"] == str(demo / "run")
    accuracy = stored["scores"]["overall"]["accuracy"]
    text = (demo / "index.html").read_text(encoding="utf-8")
    assert f"{100 * accuracy['value']:.1f} %" in text
    cases = held_document(demo / "index.html").cases
    assert len(cases) == 12
    assert all(each.similar and len(each.trees) == 3 for each in cases)
    assert len(text) < 4e6
    assert "http://" not in text.replace("http://www.w3.org", "")
    for link in ("run/scores.html", "run/bundle/README.md"):
        assert f'href="{link}"' in text
        assert (demo / link).is_file()


def test_the_images_are_the_cases_of_the_page(demo: Path, tmp_path: Path) -> None:
    files = sorted((demo / "images").iterdir())
    assert [path.name for path in files] == sorted(
        f"{name}-{i}.png" for name in ("melanoma", "nevus") for i in range(1, 7)
    )
    model = parsecaps.load(demo / "run")
    explained = [model.explain(path) for path in files]
    shown = held_document(demo / "index.html").cases
    assert sorted(each.probabilities["melanoma"] for each in explained) == pytest.approx(
        sorted(each.probabilities["melanoma"] for each in shown), abs=1e-5
    )
    saved = held_document(parsecaps.save_page(explained, tmp_path / "page.html"))
    assert [each.diagnosis for each in saved.cases] == [each.diagnosis for each in explained]
    assert len(held_document(parsecaps.save_page(explained[0], tmp_path / "one.html")).cases) == 1


def test_another_demo_takes_another_folder_and_a_refused_one_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    used: list[Path] = []

    def stopped(config: object, run_folder: Path, **more: object) -> None:
        used.append(run_folder.parent)
        run_folder.touch()
        raise TerminatedError("stopped in epoch 1")

    monkeypatch.setattr("parsecaps.training.fit.fit", stopped)
    for _ in range(3):
        assert CliRunner().invoke(app, ["demo"]).exit_code == 143
    assert [str(path) for path in used] == [FOLDER, f"{FOLDER}-2", f"{FOLDER}-3"]
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    fails("demo", *SETTINGS, "--set", "model.settings={dropot: 1}")
    assert sorted(path.name for path in tmp_path.iterdir()) == [FOLDER, f"{FOLDER}-2", f"{FOLDER}-3"]


@needs_browser
@pytest.mark.parametrize("width", [400, 1100])
def test_the_page_shows_its_cases_with_maps_trees_and_similar_cases(demo: Path, width: int) -> None:
    with page(width=width) as (opened, errors):
        opened.goto((demo / "index.html").as_uri())
        assert opened.locator(".index button").count() == 12
        for number in (1, 12):
            opened.locator(f"[data-case='{number}']").click()
            case = opened.locator(".case:visible")
            assert case.get_attribute("data-number") == str(number)
            assert case.locator(".stage .picture").evaluate("image => image.naturalWidth") == 32
            assert case.locator(".targets input").count() == 8  # the diagnosis and seven concepts
            assert case.get_by_text("Most similar training cases").is_visible()
            assert case.locator(".strip img").first.evaluate("image => image.naturalWidth") == 32
            before = case.locator(".stage .map").evaluate("canvas => canvas.toDataURL()")
            case.locator(".targets input").nth(1).check()
            assert case.locator(".stage .map").evaluate("canvas => canvas.toDataURL()") != before
            assert case.locator(".shown-prototypes img").count() == 4
            assert opened.evaluate("document.documentElement.scrollWidth") <= width
        assert opened.locator(".tree circle[role=button]").count() > 12  # some of so short a training are empty
        assert errors == []
