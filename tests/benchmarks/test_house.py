"""How large the code is: counted on a small package, and the bars that the real one must meet."""

import sys
from pathlib import Path

import pytest

from benchmarks.house import Bar, Recorder, count_lines, equal_lines, measure_house
from tests.messages import refused

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package in which `again` repeats twelve lines of `once`, and `near` eleven of them."""
    lines = [f"x{i} = {i}" for i in range(12)]
    files = {
        "once.py": "\n".join(["import os", *lines]),
        "room/again.py": "\n\n".join(["# a comment", *lines, "y = 1"]),
        "near.py": "\n".join([*lines[:11], "y = 2"]),
    }
    folder = tmp_path_factory.mktemp("house") / "src" / "parsecaps"
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_lines_are_counted_by_file(source: Path) -> None:
    assert count_lines(source) == {"near.py": 12, "once.py": 13, "room/again.py": 27}


def test_equal_lines_are_found_whatever_stands_between_them(source: Path) -> None:
    assert equal_lines(source) == ["once.py:2 ~ room/again.py:3"]
    assert len(equal_lines(source, 11)) == 3


def test_a_folder_without_the_package_is_refused(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        measure_house(tmp_path)


def test_a_bar_is_met_up_to_its_limit() -> None:
    assert [Bar("a", value, 2).is_met for value in (2, 3)] == [True, False]
    assert Bar("a", 9).is_met


def test_files_count_until_the_last_function_is_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {
        "walked_function": "def f(): return 1\n",
        "walked_class": "class A:\n    x = 1\n",
        "walked_not": "x = 1\ndef f(): return 1\n",
        "walked_last": "def cell(): return 1\n",
        "walked_later": "def f(): return 1\n",
    }.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))

    def command() -> None:
        import walked_class  # noqa: F401
        import walked_function
        import walked_last
        import walked_later
        import walked_not  # noqa: F401

        walked_function.f()
        walked_last.cell()
        walked_later.f()

    before = sys.getprofile()
    way = Recorder(str(tmp_path), ("walked_last.py", "cell")).record(command)
    assert (way.files, way.frames) == (["walked_class.py", "walked_function.py"], ["cell"])
    assert sys.getprofile() is before


def test_the_package_meets_its_bars() -> None:
    house = measure_house(ROOT)
    missed = [f"{bar.name}: {bar.value:,}, at most {bar.limit:,}" for bar in house.bars if not bar.is_met]
    assert not missed, "\n".join([*missed, *house.equal])
