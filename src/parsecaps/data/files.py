"""Files: written whole or not at all, and found by asking a folder once for all its names."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TextIO

_Names = dict[str, list[str]]  # a name in lower case -> the names on disk


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


def refuse_links(folder: str | Path) -> None:
    """Refuse a folder with a link that leads out of it; asked before anything is written or removed there."""
    inside = os.path.realpath(folder)
    for place, folders, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in (*folders, *names)):
            there = os.path.realpath(path) if os.path.islink(path) else inside
            if os.path.commonpath([inside, there]) != inside:
                raise ValueError(f"{path} is a link to {there}, outside of {folder}; put what it leads to there")


def remove_files(folder: Path, pattern: str, *, keep: str = "") -> None:
    """Remove the files of a folder whose whole names match, if they are there; no folders, no links, nothing else."""
    if not folder.is_dir() or folder.is_symlink():
        return
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if each.is_file(follow_symlinks=False) and each.name != keep]
    for name in names:
        if re.fullmatch(pattern, name):
            (folder / name).unlink(missing_ok=True)


def unfinished_pattern(names: str) -> str:
    """What files whose names match are called while they are written, by whatever process."""
    return rf"\.({names})\.[0-9]+\.tmp"


def plain_name(path: str) -> str:
    """The end of a path or of a source's name, in letters, digits and hyphens.

    >>> plain_name("phantom:n=200,size=64"), plain_name("/data/Ward 7.csv")
    ('phantom-n-200', 'Ward-7-csv')
    """
    return "".join(c if c.isalnum() else "-" for c in Path(path.partition(",")[0]).name).strip("-")


class _Folder(NamedTuple):
    files: _Names
    folders: _Names


class Listing:
    """The names on disk, folder by folder, each folder read when it is first asked for."""

    def __init__(self) -> None:
        self._known: dict[str, _Folder] = {}

    def find(self, path: str | Path) -> Path | None:
        """The file as it is on disk, where upper and lower case may differ; None where nothing or several fit."""
        folder, name = os.path.split(os.path.normpath(path))
        place = self._find_folder(folder)
        found = None if place is None else _pick(self._folder(place).files, name)
        return None if found is None or place is None else Path(place, found)

    def _find_folder(self, path: str) -> str | None:
        if path in self._known or not path or os.path.isdir(path):
            return path
        parent, name = os.path.split(path)
        place = self._find_folder(parent) if parent != path else None
        found = None if place is None else _pick(self._folder(place).folders, name)
        return None if found is None or place is None else os.path.join(place, found)

    def _folder(self, path: str) -> _Folder:
        if path not in self._known:
            folder = _Folder({}, {})
            try:
                with os.scandir(path or ".") as entries:
                    for entry in entries:
                        names = folder.folders if entry.is_dir() else folder.files
                        names.setdefault(entry.name.casefold(), []).append(entry.name)
            except OSError:  # a folder that may not be read has nothing for us
                folder = _Folder({}, {})
            self._known[path] = folder
        return self._known[path]


def _pick(names: _Names, name: str) -> str | None:
    alike = names.get(name.casefold(), [])
    if name in alike:
        return name
    return alike[0] if len(alike) == 1 else None
