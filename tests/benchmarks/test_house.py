"""How large the code is: counted on a small package, and the real one walked once."""

import sys
from pathlib import Path

import pytest

from benchmarks.house import Bar, count_lines, lonely_modules, measure_house, trace

ROOT = Path(__file__).parents[2]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Two modules import `shared`, one imports `lonely`, a package exports `hidden`, nobody imports `dead`."""
    files = {
        "__init__.py": "",
        "shared.py": "x = 1\n",
        "lonely.py": "y = 1\n",
        "dead.py": "",
        "long.py": "z = 1\n" * 60,
        "a.py": "from parsecaps.shared import x\nfrom parsecaps import lonely, b\nimport parsecaps.long\n",
        "b.py": "def late():\n    from . import shared, a\n",
        "room/__init__.py": "from parsecaps.room.hidden import f\n",
        "room/hidden.py": "def f(): pass\n",
        "room/user.py": "from .hidden import f\nfrom ..a import x\nfrom ..b import late\n",
        "cli/verb.py": "import parsecaps.room.user\n",
        "cli/other.py": "from parsecaps.room import user\n",
    }
    for name, text in files.items():
        path = tmp_path / "src" / "parsecaps" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return tmp_path / "src" / "parsecaps"


def test_short_modules_with_one_importer_are_found(source: Path) -> None:
    assert lonely_modules(source) == ["dead.py", "lonely.py"]


def test_lines_and_files(source: Path) -> None:
    assert count_lines(source)["long.py"] == 60
    house = measure_house(source.parents[1], ways=False)
    assert [(bar.name, bar.value) for bar in house.bars][:2] == [("files in src", 12), ("lines in src", 74)]
    assert next(iter(house.largest)) == "long.py"
    with pytest.raises(FileNotFoundError, match=r"give the folder of a checkout"):
        measure_house(source)


def test_a_bar_is_met_up_to_its_limit() -> None:
    assert [Bar("a", value, 2).is_met for value in (2, 3)] == [True, False]
    assert Bar("a", 9).is_met


def test_only_modules_whose_functions_run_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "walked_runs": "def f(): return 1\n",
        "walked_later": "def f(): return 1\n",
        "walked_not": "class A:\n    x = 1\ndef f(): return 1\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    over: list[int] = []

    def command() -> None:
        import walked_later
        import walked_not  # noqa: F401  # imported, but nothing of it is called
        import walked_runs

        walked_runs.f()
        over.append(1)
        walked_later.f()
        walked_runs.f()

    before = sys.getprofile()
    assert trace(command, str(tmp_path), lambda: bool(over)) == (["walked_runs.py"], ["walked_later.py"])
    assert sys.getprofile() is before is None


def test_the_package_is_walked() -> None:
    house = measure_house(ROOT)
    assert {"cli/train.py", "run.py", "training/loop.py", "models/parsecaps.py"} <= set(house.ways["train"])
    assert "evaluate.py" in house.ways["scores"]
    assert {"cli/explain.py", "explain/explainer.py"} <= set(house.ways["explain"])
    assert not any(name.endswith("__init__.py") for way in house.ways.values() for name in way)
    assert not any(name.startswith("training/") for name in house.ways["explain"])
