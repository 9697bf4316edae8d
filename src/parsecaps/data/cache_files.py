"""What lies in the cache of prepared images, how large it is, and how it is emptied."""

import os
import re
from pathlib import Path
from typing import NamedTuple

from filelock import FileLock, Timeout

from parsecaps.files.writing import remove_files, unfinished_pattern

_SET = r"([0-9a-f]{24})\.(?:json|(?:images|bits|thumbnails)\.(?:npy|tmp))"
_DIGESTS = r"digests-[0-9]+-[0-9a-f]{16}\.json"


class CacheSize(NamedTuple):
    """How many prepared data sets there are, and the bytes that they take."""

    sets: int
    bytes: int


def cache_size(folder: Path) -> CacheSize:
    """The size of what `data.cache` wrote into a folder; whatever else lies there is not counted."""
    sizes = {name: os.lstat(folder / name).st_size for name in _names(folder)}
    return CacheSize(len(_keys(sizes)), sum(sizes.values()))


def clear_cache(folder: Path) -> CacheSize:
    """Remove what `data.cache` wrote into a folder and nothing else; gives what was removed.

    A set that another process prepares just now stays. So do the locks, which are empty: somebody may wait at one.
    """
    before = cache_size(folder)
    for key in _keys(_names(folder)):
        try:
            with FileLock(folder / f"{key}.lock", timeout=0, mode=0o600):
                remove_files(folder, _of(key))
        except Timeout:
            continue
    remove_files(folder, rf"{_DIGESTS}|{unfinished_pattern(_DIGESTS)}")
    after = cache_size(folder)
    return CacheSize(before.sets - after.sets, before.bytes - after.bytes)


def _of(key: str) -> str:
    """What the files of a set are called."""
    own = _SET.replace("([0-9a-f]{24})", key)
    return rf"{own}|{unfinished_pattern(own)}"


def _names(folder: Path) -> list[str]:
    if not folder.is_dir():
        return []
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if each.is_file(follow_symlinks=False)]
    ours = rf"{_SET}|{_DIGESTS}|{unfinished_pattern(f'{_SET}|{_DIGESTS}')}"
    return [name for name in names if re.fullmatch(ours, name)]


def _keys(names: "list[str] | dict[str, int]") -> list[str]:
    """The sets that some files are of."""
    found = (re.fullmatch(rf"\.?{_SET}(?:\.[0-9]+\.tmp)?", name) for name in names)
    return sorted({match[1] for match in found if match})
