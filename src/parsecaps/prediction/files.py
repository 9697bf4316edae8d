"""Which images are asked for: files, folders with all below them, and manifests; each frame of a file with several."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from parsecaps.data.cases import EXTENSIONS
from parsecaps.data.reading import is_known_format, look_into
from parsecaps.data.spreadsheets import TABLE_SUFFIXES
from parsecaps.files.writing import visible

_KEPT = 1000  # names of files that are left out
_SHOWN = 5  # of them in a sentence


class ImageFile(NamedTuple):
    """An image to look at: a file, its frame and `patient` if known; or why there is none."""

    path: Path
    frame: int | None = None
    error: str = ""
    patient: str = ""

    @property
    def name(self) -> str:
        return str(self.path) if self.frame is None else f"{self.path}#{self.frame}"


class LeftOut:
    """What folders hold beside images, such as hidden files: a `count` and some `names`; one's `own` do not count."""

    def __init__(self, own: Iterable[Path] = ()) -> None:
        self.count = 0
        self.names: list[str] = []
        self._own = {os.path.realpath(path) for path in own}

    def add(self, path: Path, folder: Path) -> None:
        if self._own and os.path.realpath(path) in self._own:
            return
        self.count += 1
        if len(self.names) < _KEPT:
            self.names.append(path.relative_to(folder).as_posix())

    def join(self, count: int, names: Sequence[str]) -> None:
        self.count += count
        self.names = sorted([*self.names, *names])[:_KEPT]

    def sentence(self) -> str:
        one = self.count == 1
        files = "1 file that is not an image or is" if one else f"{self.count:,} files that are not images or are"
        more = f" and {self.count - _SHOWN:,} more" if self.count > _SHOWN else ""
        return f"left out {files} hidden: {', '.join(map(visible, self.names[:_SHOWN]))}{more}"


@dataclass(frozen=True)
class Shard:
    """The part of the work that is done here: every `count`-th file, from number `rank` on, counted from 0."""

    rank: int = 0
    count: int = 1


def find_files(inputs: Iterable[str | Path], left_out: LeftOut | None = None) -> Iterator[ImageFile]:
    """The images of files, folders and manifests, in order; what cannot be read is named, not left out.

    A folder's files are images by their ending or, where that says nothing, by their first bytes.
    """
    for _, image in find_shard(inputs, left_out, Shard()):
        yield image


def find_shard(inputs: Iterable[str | Path], left_out: LeftOut | None, shard: Shard) -> Iterator[tuple[int, ImageFile]]:
    """The images in the shard, with the number of their file among all; files of other shards are not opened."""
    left_out = LeftOut() if left_out is None else left_out
    for number, look in enumerate(_units(inputs, left_out)):
        if number % shard.count == shard.rank:
            yield from ((number, image) for image in look())


_Unit = Callable[[], Iterable[ImageFile]]  # looks into one file, or at one row of a manifest


def _units(inputs: Iterable[str | Path], left_out: LeftOut) -> Iterator[_Unit]:
    for text in inputs:
        path = Path(text)
        if os.path.isdir(path):
            yield from (partial(_found_below, path, *found, left_out) for found in _walk(path))
            yield partial(_if_empty, path)
        elif path.suffix.casefold() in TABLE_SUFFIXES and os.path.isfile(path):
            yield from (partial(iter, [image]) for image in _listed(path))
        else:
            yield partial(_frames, path)


def _listed(path: Path) -> Iterator[ImageFile]:
    from parsecaps.data.sources import manifest

    try:
        listed = manifest.read(str(path))
    except (OSError, ValueError) as error:
        yield ImageFile(path, None, str(error))
        return
    for case in listed.cases:
        yield ImageFile(case.image, case.frame, patient=case.patient)
    for problem in listed.problems:
        yield ImageFile(Path(problem.file), None, str(problem))


def _found_below(folder: Path, path: Path, error: str, left_out: LeftOut) -> Iterator[ImageFile]:
    if not error and _is_left_out(path):
        left_out.add(path, folder)
        return
    yield from [ImageFile(path, None, error)] if error else _frames(path)


def _is_left_out(path: Path) -> bool:
    return path.name.startswith(".") or os.path.isdir(path) or not _is_image(path)


def _if_empty(folder: Path) -> Iterator[ImageFile]:
    if all(not error and _is_left_out(path) for path, error in _walk(folder)):
        yield ImageFile(folder, None, f"{folder} has no image in it; check its path")


def _walk(top: Path) -> Iterator[tuple[Path, str]]:
    """All files and links below a folder, in the order of their paths, and each folder that cannot be read with why."""
    coming = [
        (top.parent, top.name, True)
    ]  # the next one last: its folder, its name, and whether it is a folder itself
    while coming:
        folder, name, is_folder = coming.pop()
        path = folder / name
        if not is_folder:
            yield path, ""
            continue
        try:
            with os.scandir(path) as entries:
                inside = [(path, entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        except OSError as error:
            yield path, f"{path} cannot be read ({error.strerror}); allow reading it, or leave it out"
            continue
        coming += sorted(inside, key=lambda each: os.path.normcase(each[1]), reverse=True)


def _is_image(path: Path) -> bool:
    """Whether a file is an image by its ending or else by its first bytes; one that cannot be read may be one."""
    if path.name.casefold().endswith(EXTENSIONS):
        return True
    try:
        return S_ISREG(path.stat().st_mode) and is_known_format(path)
    except OSError:
        return True


def _frames(path: Path) -> Iterator[ImageFile]:
    try:
        found = look_into(path)
    except (OSError, ValueError) as error:
        yield ImageFile(path, None, str(error))
        return
    frames = [None] if found.frames == 1 else range(found.frames)
    yield from (ImageFile(path, frame, patient=found.patient) for frame in frames)
