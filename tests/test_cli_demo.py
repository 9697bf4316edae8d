"""The demonstration, as short as it can be; `docs/training.md` has what the whole one reaches."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from parsecaps.cli import app
from parsecaps.cli.demo import FOLDER
from parsecaps.pipeline.demo import demo_config
from tests.browser import needs_browser, page

SHORT = (
    "data.path=phantom:n=240,size=32",
    "model.preset=tiny",
    "model.image_size=32",
    "model.settings={}",
    "training.epochs=1",
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("here") / "demo"
    settings = [part for each in SHORT for part in ("--set", each)]
    result = CliRunner().invoke(
        app, ["demo", "--out", str(folder), "--json", str(folder.parent / "demo.json"), *settings]
    )
    assert result.exit_code == 0, result.output
    assert f"open this first: {folder / 'index.html'}" in result.output
    return folder


def test_the_shipped_settings_are_those_that_are_run() -> None:
    assert demo_config().data.path == "phantom:n=7200,size=64"
    assert demo_config(None, ["training.epochs=1"]).training.epochs == 1
    with pytest.raises(ValueError, match=r"did you mean 'training\.epochs'"):
        demo_config(None, ["training.epoch=1"])


def test_everything_is_left_behind(demo: Path) -> None:
    stored = json.loads((demo.parent / "demo.json").read_text(encoding="utf-8"))
    assert stored["run"] == str(demo / "run")
    accuracy = stored["scores"]["overall"]["accuracy"]
    text = (demo / "index.html").read_text(encoding="utf-8")
    assert f"{100 * accuracy['value']:.1f} %" in text
    assert text.count('class="case"') == 12
    assert "http://" not in text.replace("http://www.w3.org", "")
    for link in ("run/scores.html", "run/bundle/README.md"):
        assert f'href="{link}"' in text
        assert (demo / link).is_file()


def test_another_demo_takes_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from parsecaps.cli.demo import _free

    monkeypatch.chdir(tmp_path)
    assert _free() == Path(FOLDER)
    Path(FOLDER).mkdir()
    assert _free() == Path(f"{FOLDER}-2")


@needs_browser
def test_the_page_shows_its_cases(demo: Path) -> None:
    with page(width=400) as (opened, errors):
        opened.goto((demo / "index.html").as_uri())
        assert opened.locator(".case img").count() == 12
        assert opened.locator(".case img").first.evaluate("image => image.naturalWidth") == 32
        assert opened.evaluate("document.documentElement.scrollWidth") <= 400
        assert errors == []
