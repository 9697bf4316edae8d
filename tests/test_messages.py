"""The comparison of messages itself, in a room of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
from pathlib import Path

import tests.messages
from tests.messages import pytest_addoption, pytest_configure, temporary_folder

tests.messages.TESTS = Path(__file__).parent
"""
TEST = """
import pytest
from tests.messages import message, refused

@pytest.mark.parametrize("number", [1, 2])
def test_a(number, tmp_path):
    with refused(ValueError, hide="[0-9] MB"):
        raise ValueError(f"{tmp_path}/a.csv, row {number}: 7 MB")

def test_b():
    message("one\\n\\ntwo", "three", containing="o")
"""
STORED = """test_it.py::test_a[1]
    TMP/a.csv, row 1: …

test_it.py::test_a[2]
    TMP/a.csv, row 2: …

test_it.py::test_b
    one
    two
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    (tmp_path / "messages.txt").write_text(STORED, encoding="utf-8")
    return tmp_path


def pytest_in(room: Path, *arguments: str) -> tuple[bool, str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir=."]
    command += ["-c", "/dev/null", "-o", f"pythonpath={ROOT} {ROOT / 'src'}", *arguments]
    plain = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # plugins take seconds to start
    done = subprocess.run(command, cwd=room, env=plain, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode == 0, done.stdout + done.stderr


def test_what_is_stored_passes_and_the_update_writes_it(room: Path) -> None:
    assert pytest_in(room, "test_it.py")[0]
    (room / "messages.txt").write_text("test_it.py::test_gone\n    text\n", encoding="utf-8")
    assert pytest_in(room, "--update-messages", "test_it.py")[0]
    assert (room / "messages.txt").read_text(encoding="utf-8") == STORED


@pytest.mark.parametrize(
    ("before", "after"),
    [("    two\n", "    tow\n"), ("    two\n", ""), ("    two\n", "    two\n    more\n"), ("_b", "_gone")],
    ids=["different", "missing", "more", "of no test"],
)
def test_a_difference_fails_where_it_is_and_says_the_command(before: str, after: str, room: Path) -> None:
    (room / "messages.txt").write_text(STORED.replace(before, after), encoding="utf-8")
    passed, said = pytest_in(room, "test_it.py")
    assert not passed
    assert "--update-messages" in said


def test_what_is_not_run_is_not_missed(room: Path) -> None:
    (room / "messages.txt").write_text(STORED + "\ntest_it.py::test_gone\n    text\n", encoding="utf-8")
    assert pytest_in(room, "test_it.py::test_a")[0]
    assert pytest_in(room, "test_it.py", "-k", "test_a")[0]
    assert not pytest_in(room, "test_it.py")[0]


def test_several_processes_do_not_write(room: Path) -> None:
    passed, said = pytest_in(room, "--update-messages", "test_it.py", "-p", "xdist.plugin", "-n", "2")
    assert not passed
    assert "add -n 0" in said
