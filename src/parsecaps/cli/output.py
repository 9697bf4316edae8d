"""What the commands print and write: tables, lines and files."""

import json
import os
import sys
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parsecaps.types import Grid

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


def check_writable(path: Path | None) -> None:
    """Refuse a file that cannot be written before the work starts, not after it."""
    if path is None:
        return
    if path.is_dir():
        raise OSError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise OSError(f"{path} cannot be written: {path.parent} is not there; mkdir -p {path.parent} makes it")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OSError(f"{path} cannot be written; choose another place")


def next_free(path: Path) -> Path:
    """A path that nothing is at yet: this one, or `-2`, `-3` and so on after its name."""
    names = chain([path], (path.with_stem(f"{path.stem}-{number}") for number in count(2)))
    return next(free for free in names if not free.exists())


def model_name(model: Path) -> str:
    """What to call what is made of a model: the name of its folder, or of its repository on the hub.

    >>> model_name(Path("runs/cases-1")), model_name(Path("hf://owner/cases@v1"))
    ('cases-1', 'cases')
    """
    name = model.resolve().name
    return name.partition("@")[0] if model.parts[:1] == ("hf:",) else name


def write_json(path: Path | None, content: dict[str, Any]) -> None:
    """Write `content` where a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def display(*shown: "Grid | Table | Text | str", stderr: bool = False) -> None:
    """Print tables, and lines that only the terminal wraps."""
    out = console(stderr=stderr)
    for each in shown:
        if isinstance(each, Grid):
            from parsecaps.report.draw import draw  # not before there is a table: it takes a second

            out.print(draw(each, "terminal"))
        else:
            out.print(each, soft_wrap=isinstance(each, str))


def console(*, stderr: bool = False) -> "Console":
    """Where to print, wide enough in a pipe or file that no table is cut; nothing is markup."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else 120
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False)
