"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO


@contextmanager
def write_atomically(path: str | Path) -> Iterator[TextIO]:
    """A UTF-8 text file to write to; it takes its name only when all of it is written, and replaces what had it.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with write_atomically(target) as file:
    ...     _ = file.write("whole")
    >>> target.read_text()
    'whole'
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(unfinished, "w", encoding="utf-8", newline="") as file:
            yield file
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file that is there whole or not at all."""
    with write_atomically(path) as file:
        file.write(text)


def plain_name(path: str) -> str:
    """The end of a path or of a source's name, in letters, digits and hyphens.

    >>> plain_name("phantom:n=200,size=64"), plain_name("/data/Ward 7.csv")
    ('phantom-n-200', 'Ward-7-csv')
    """
    return "".join(c if c.isalnum() else "-" for c in Path(path.partition(",")[0]).name).strip("-")
