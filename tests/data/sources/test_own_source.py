"""The recipe of CONTRIBUTING.md for a data set of one's own: it is run as it stands there."""

import re
import sys
import types
from pathlib import Path

import pytest

from parsecaps.data import sources
from parsecaps.data.sources import Source
from tests.data.sources.layouts import write_image, write_text

RECIPE = Path(__file__).parents[3] / "CONTRIBUTING.md"


@pytest.fixture
def films(monkeypatch: pytest.MonkeyPatch) -> Source:
    """The source of the recipe, listed before all others."""
    chapter = RECIPE.read_text(encoding="utf-8").split("## Add a dataset")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", chapter, re.DOTALL)
    (row,) = re.findall(r"Then add `(Source\(.*?\))`", chapter)
    module = types.ModuleType("parsecaps.data.sources.films")
    exec(compile(code, str(RECIPE), "exec"), module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    source: Source = eval(row, {"Source": Source})
    monkeypatch.setattr(sources, "SOURCES", {source.name: source, **sources.SOURCES})
    return source


def test_the_recipe_for_a_data_set_works(films: Source, tmp_path: Path) -> None:
    for name in ("0001.png", "0002.png"):
        write_image(tmp_path / "images" / name)
    rows = ["0001.png,healthy,p1,yes", "0002.png,malaria,p2,", "0003.png,flu,,maybe"]
    write_text(tmp_path / "slides.csv", "file,finding,person,banded", *rows)
    data = sources.open_data(tmp_path)
    assert data.source == films.name == "films"
    assert [(case.label, case.patient, case.row) for case in data.cases] == [(0, "p1", 2), (1, "p2", 3)]
    assert data.cases[0].concepts == (1.0,)
    assert data.cases[1].concepts[0] != data.cases[1].concepts[0]  # unknown
    assert {problem.row for problem in data.problems} == {4}
    assert len(data.problems) == 4
    assert len(sources.open_data(f"films:{tmp_path}")) == 2
