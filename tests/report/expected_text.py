"""What results print, compared with the files in `expected`; `WRITE_EXPECTED=1` writes them anew."""

import io
import os
from pathlib import Path

from rich.console import Console
from rich.table import Table

from parsecaps.report.draw import draw
from parsecaps.types import Grid

_FOLDER = Path(__file__).parent / "expected"


def printed(*shown: Grid | Table | str) -> str:
    """The text that a terminal without colours shows, without spaces at the ends of lines."""
    file = io.StringIO()
    console = Console(width=140, file=file, markup=False, emoji=False, highlight=False)
    for each in shown:
        console.print(draw(each, "terminal") if isinstance(each, Grid) else each, soft_wrap=isinstance(each, str))
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def assert_expected(name: str, text: str) -> None:
    """Compare a text with the file of this name."""
    file = _FOLDER / name
    if os.environ.get("WRITE_EXPECTED"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
