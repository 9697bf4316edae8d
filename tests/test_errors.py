"""Every error that a user can cause says what is wrong, and then, after a semicolon, what would work."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import parsecaps

SOURCE = Path(parsecaps.__file__).parent
ROOMS = ("cli", "config.py", "discovery", "evaluation.py", "model.py", "prediction", "run.py", "training")
KINDS = {
    *("ValueError", "OSError", "FileNotFoundError", "FileExistsError", "NotADirectoryError", "PermissionError"),
    *("ModuleNotFoundError", "DivergedError"),
}


def errors(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the fixed words of each error that is raised with words of its own; a value stands as {}."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            name, words = node.exc.func, node.exc.args[0]
            if isinstance(name, ast.Name) and name.id in KINDS and isinstance(words, ast.Constant | ast.JoinedStr):
                parts = words.values if isinstance(words, ast.JoinedStr) else [words]
                yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)


def files() -> list[Path]:
    found = [SOURCE / room for room in ROOMS]
    return sorted(path for place in found for path in (place.rglob("*.py") if place.is_dir() else [place]))


def test_errors_end_with_what_would_work() -> None:
    checked = [
        (f"{path.relative_to(SOURCE)}:{line}", words)
        for path in files()
        for line, words in errors(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert len(checked) > 80
    # an error that goes on with a setting's name before it says so already
    assert [f"{place}: {words}" for place, words in checked if "; " not in words and words != "model.kind: {}"] == []


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("raise ValueError(f'{a} is wrong; give {b}')", ["{} is wrong; give {}"]),
        ("raise OSError('bad')", ["bad"]),
        ("raise ValueError(reason)", []),
        ("raise AssertionError('bad')", []),
    ],
)
def test_the_checker_sees_the_words(code: str, found: list[str]) -> None:
    assert [words for _, words in errors(ast.parse(code))] == found
