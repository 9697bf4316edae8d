"""Files: written whole or not at all, closed to other users where they hold patients, and found by their names."""

import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO, TextIO

_FILE, _FOLDER = 0o600, 0o700  # for this user alone
_OTHERS = 0o077

_Names = dict[str, list[str]]  # a name in lower case -> the names on disk
_UNSEEN = {"Cc", "Cs", "Zl", "Zp"}  # Unicode's control characters, surrogates, and separators of lines and paragraphs
_FIRST_BYTE = 0xDC00  # what Python adds to a byte of a name that is not UTF-8


@contextmanager
def write_atomically(path: str | Path, *, private: bool = False) -> Iterator[TextIO]:
    r"""A UTF-8 text file to write to, which takes its name only when it is complete.

    What UTF-8 cannot hold is written as `\udce9`. A `private` file, or one in a private folder, is closed to others.

    >>> import tempfile
    >>> target = Path(tempfile.mkdtemp()) / "notes.txt"
    >>> with write_atomically(target) as file:
    ...     _ = file.write("whole")
    >>> target.read_text()
    'whole'
    """
    with (
        _unfinished(Path(path), private) as unfinished,
        open(unfinished, "w", encoding="utf-8", errors="backslashreplace", newline="") as file,
    ):
        yield file


@contextmanager
def write_binary(path: str | Path, *, private: bool = False) -> Iterator[BinaryIO]:
    """The same for bytes, which are on the disk before the file takes its name."""
    with _unfinished(Path(path), private) as unfinished, open(unfinished, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_text(path: str | Path, text: str, *, private: bool = False) -> None:
    """Write a text file that is there whole or not at all."""
    with write_atomically(path, private=private) as file:
        file.write(text)


@contextmanager
def _unfinished(path: Path, private: bool) -> Iterator[Path]:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        if private or not path.parent.stat().st_mode & _OTHERS:
            make_private_file(unfinished)
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file that other users cannot open, whatever the umask says."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, _FILE))
    path.chmod(_FILE)


def make_private_folder(folder: str | Path) -> list[Path]:
    """Make a folder that is closed to other users, with missing parents, unless it exists; return what was made."""
    folder, made = Path(folder), list[Path]()
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        with suppress(FileExistsError):  # of another process, which made it just now
            path.mkdir(_FOLDER)
            path.chmod(_FOLDER)
            made.append(path)
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file, not a folder; choose another place")
    return made


def make_first_free(folders: Iterable[Path]) -> list[Path]:
    """Make the first of these folders that does not exist, once for all processes; return what was made, it last."""
    for folder in folders:
        if (made := make_private_folder(folder)) and made[-1] == folder:
            return made
    raise FileExistsError("all the names for a new folder are taken; choose another place")


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, the last one first, as far as nothing is in them."""
    with suppress(OSError):
        for folder in reversed(list(folders)):
            folder.rmdir()


def close_to_others(folder: Path) -> None:
    """Take from other users every right to a folder of ours and to all that is in it."""
    for place, _, names in os.walk(folder):
        os.chmod(place, _FOLDER)
        for path in (os.path.join(place, name) for name in names):
            if not os.path.islink(path):  # what a link leads to is not ours
                os.chmod(path, _FILE)


def visible(text: str) -> str:
    r"""A text on one line, with control characters and bytes that are not UTF-8 written as `\x0d`.

    >>> print(visible("a\r\nb"), visible("caf\udce9.png"))
    a\x0d\x0ab caf\xe9.png
    """
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _UNSEEN:
        return character
    code = ord(character)
    code -= _FIRST_BYTE if _FIRST_BYTE + 0x80 <= code <= _FIRST_BYTE + 0xFF else 0
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def refuse_links(folder: str | Path) -> None:
    """Refuse a folder with a link that leads out of it, before anything is written or removed there."""
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
        names = {each.name for each in entries if each.is_file(follow_symlinks=False)}
    for name in names - {keep}:
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


class Listing:
    """The names on disk, folder by folder, each folder read when it is first asked for."""

    def __init__(self) -> None:
        self._folder, self._is_folder = cache(_folder_names), cache(os.path.isdir)

    def find(self, path: str | Path) -> Path | None:
        """The file as it is on disk, where upper and lower case may differ; None where nothing or several fit."""
        found = self._locate(os.path.normpath(path), is_folder=False)
        return None if found is None else Path(found)

    def _locate(self, path: str, *, is_folder: bool) -> str | None:
        if is_folder and (not path or self._is_folder(path)):
            return path
        parent, name = os.path.split(path)
        place = self._locate(parent, is_folder=True) if parent != path else None
        alike = [] if place is None else self._folder(place)[is_folder].get(name.casefold(), [])
        found = name if name in alike else alike[0] if len(alike) == 1 else None
        return None if place is None or found is None else os.path.join(place, found)


def _folder_names(path: str) -> tuple[_Names, _Names]:
    """Of a folder its files and its folders."""
    found: tuple[_Names, _Names] = ({}, {})
    with suppress(OSError), os.scandir(path or ".") as entries:  # one that may not be read has nothing for us
        for entry in entries:
            found[entry.is_dir()].setdefault(entry.name.casefold(), []).append(entry.name)
    return found
