"""Images decoded and prepared once, kept in a file that is mapped into memory instead of read.

A cache is named after what the files hold and how they are prepared, so a changed file or preparation gets another
one. It is written under another name and takes its own when it is whole; of two processes that want the same one,
the second waits for the first. Checksums of all it holds are kept with it: a damaged one is made anew. The images are
those of patients, so no other user may look into it.
"""

import errno
import hashlib
import json
import logging
import math
import mmap
import os
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock

from parsecaps.data.cases import Case, DataSet, Problem
from parsecaps.data.leaks import Fingerprints, fingerprint
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import READERS, RawImage, in_shares, prepare_image, read_mask
from parsecaps.files.writing import make_private_file, make_private_folder, write_atomically
from parsecaps.types import ProgressCallback, silent

_FORMAT = 2  # another number for another layout of the files below
_CHUNK = 64  # images prepared between two writes
_BLOCK = 1 << 20  # bytes written at a time where a file system reserves none
_PARTS = ("images", "bits", "thumbnails")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOVE = "PARSECAPS_CACHE=FOLDER keeps the prepared images in another folder"
_log = logging.getLogger(__name__)  # which shows warnings on stderr, unless a program has other plans


class BadDataError(ValueError):
    """A data set that cannot be used as it is; `problems` has all that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        super().__init__(f"{problems[0]}{more}")


@dataclass(frozen=True)
class PreparedImages:
    """The images of a data set, in its order, mapped from a file.

    Shapes:
        - images: (N, channels, size, size) uint8; zeros where `problems` names the file
        - sizes: N pairs of height and width, as the files have them; (0, 0) for a file that could not be read
        - digests: N texts, equal where the pixels come from equal files
    """

    images: np.ndarray
    fingerprints: Fingerprints
    sizes: list[tuple[int, int]]
    digests: list[str]
    problems: list[Problem]

    @property
    def good(self) -> list[int]:
        """The indices of the images that could be read."""
        return [i for i, size in enumerate(self.sizes) if size != (0, 0)]


def cache_folder() -> Path:
    """Where caches are kept: `PARSECAPS_CACHE`, or the user's own folder for caches.

    A user without a home (an unknown number in a container, say) has a folder below that for temporary files.
    """
    if chosen := os.environ.get("PARSECAPS_CACHE"):
        return Path(chosen)
    if chosen := os.environ.get("XDG_CACHE_HOME"):
        return Path(chosen) / "parsecaps"
    try:
        return Path.home() / ".cache" / "parsecaps"
    except RuntimeError:  # neither HOME nor the list of users knows
        return _temporary_folder()


def _temporary_folder() -> Path:
    """A folder in a place where everybody may write: taken only if it is ours and closed to others."""
    if not hasattr(os, "getuid"):  # Windows, where a home is always known
        raise OSError(f"there is no home folder; {_MOVE}")
    folder = Path(tempfile.gettempdir()) / f"parsecaps-{os.getuid()}"
    make_private_folder(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise OSError(f"there is no home folder, and {folder} is not a private folder of this user; {_MOVE}")
    return folder


def prepare_all(
    data: DataSet,
    preparation: Preparation,
    *,
    folder: Path | None = None,
    skip_bad: bool = False,
    progress: ProgressCallback = silent,
) -> PreparedImages:
    """Every image of the data set, prepared; from the cache where it is there, else made now.

    Files that cannot be read are refused all together (`BadDataError`), or with `skip_bad` named in `problems`.
    """
    folder = cache_folder() if folder is None else folder
    with _one_line_errors(folder, sum(map(_bytes, _shapes(data, preparation)))):
        make_private_folder(folder)
        digests = _digests(data, folder)
        key = _key(data, preparation, digests)
        with FileLock(folder / f"{key}.lock", mode=0o600):  # let go by the system, also when a process is killed
            prepared = _find(data, folder, key, digests)
            if prepared is None:
                _build(data, preparation, folder, key, progress)
                prepared = _open(folder, key, digests)
    if prepared.problems and not skip_bad:
        raise BadDataError(prepared.problems)
    return prepared


def prepared_masks(data: DataSet, preparation: Preparation, rows: Sequence[int]) -> np.ndarray:
    """How much of each pixel of these cases the mask covers: (n, size, size), float32; zeros where a case has none."""
    masks = np.zeros((len(rows), preparation.size, preparation.size), np.float32)
    for i, row in enumerate(rows):
        case = data.cases[row]
        if case.mask is not None:
            masks[i] = preparation.prepare_mask(read_mask(case.mask, case.frame)).numpy()
    return masks


class _DamagedError(ValueError):
    """A cache that is not as it was written."""


def _find(data: DataSet, folder: Path, key: str, digests: list[str]) -> PreparedImages | None:
    """The cache, if it is there and whole, and no file it could not read has become readable (by a plugin, say)."""
    if not (folder / f"{key}.json").is_file():
        return None
    try:
        prepared = _open(folder, key, digests)
    except _DamagedError as error:
        _log.warning("%s; the images are prepared again", error)
        return None
    bad = [case for case, size in zip(data.cases, prepared.sizes, strict=True) if size == (0, 0)]
    return prepared if all(_read(case, lambda raw: (None, (1, 1), None))[2] for case in bad) else None


def _open(folder: Path, key: str, digests: list[str]) -> PreparedImages:
    """Map the parts into memory, each with the checksum that it had when it was written."""
    about = _read_json(folder / f"{key}.json")
    images, bits, thumbnails = (_map(folder / f"{key}.{part}.npy", about["checksums"][part]) for part in _PARTS)
    return PreparedImages(
        images,
        Fingerprints(bits, thumbnails),
        [(height, width) for height, width in about["sizes"]],
        digests,
        [Problem(*problem) for problem in about["problems"]],
    )


def _read_json(path: Path) -> dict[str, Any]:
    """What `_write_json` wrote."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        content: dict[str, Any] = stored["content"]
        if stored["checksum"] != zlib.crc32(_text(content).encode()):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise _DamagedError(f"the cache is damaged: {path} is not as it was written") from None
    return content


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    with write_atomically(path, private=True) as file:
        json.dump({"checksum": zlib.crc32(_text(content).encode()), "content": content}, file)


def _text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True)


def _map(path: Path, checksum: int) -> np.ndarray:
    try:
        if _checksum(path) != checksum:
            raise ValueError
        mapped: np.ndarray = np.load(path, mmap_mode="r")
    except PermissionError:
        raise
    except (OSError, ValueError):
        raise _DamagedError(f"the cache is damaged: {path} is not as it was written") from None
    return mapped


def _checksum(path: Path) -> int:
    """Of a whole file: a second for four gigabytes that are in memory."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return zlib.crc32(content)


def _build(data: DataSet, preparation: Preparation, folder: Path, key: str, progress: ProgressCallback) -> None:
    """Write all parts under other names, give them their own, and last the one that says they are there."""
    try:
        about = _write_parts(data, preparation, folder, key, progress)
        _write_json(folder / f"{key}.json", about)
    finally:
        for left in folder.glob(f"{key}.*.tmp"):  # ours, or of a run that was killed: the lock is ours
            left.unlink()


def _write_parts(
    data: DataSet, preparation: Preparation, folder: Path, key: str, progress: ProgressCallback
) -> dict[str, Any]:
    names = [folder / f"{key}.{part}.npy" for part in _PARTS]
    unfinished = [name.with_suffix(".tmp") for name in names]
    shapes, count = _shapes(data, preparation), len(data)
    images, bits, thumbnails = (_reserve(name, shape) for name, shape in zip(unfinished, shapes, strict=True))
    sizes: list[tuple[int, int]] = []
    problems: list[Problem] = []
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, count, _CHUNK):
            rows = range(start, min(start + _CHUNK, count))
            for row, (pixels, size, problem) in zip(rows, _prepare(data, rows, preparation, pool), strict=True):
                images[row] = 0 if pixels is None else pixels
                sizes.append(size)
                problems += [] if problem is None else [problem]
            block = torch.from_numpy(np.array(images[start : rows.stop])).float() / 255
            bits[start : rows.stop], thumbnails[start : rows.stop] = fingerprint(block)
            progress(rows.stop, count)
    checksums = {}
    for array, part, temporary, name in zip((images, bits, thumbnails), _PARTS, unfinished, names, strict=True):
        array.flush()
        checksums[part] = _checksum(temporary)
        os.replace(temporary, name)
    return {"sizes": sizes, "problems": problems, "preparation": preparation.to_dict(), "checksums": checksums}


def _shapes(data: DataSet, preparation: Preparation) -> list[tuple[int, ...]]:
    side, count = preparation.size, len(data)
    return [(count, preparation.channels, side, side), (count, 32), (count, 256)]


def _bytes(shape: tuple[int, ...]) -> int:
    return math.prod(shape) + 128  # the header of the file


def _reserve(path: Path, shape: tuple[int, ...]) -> np.memmap:
    """A new array in a file that has its room on the disk: without it, a mapped file ends the process by SIGBUS."""
    make_private_file(path)
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=shape)
    size = path.stat().st_size
    with open(path, "r+b") as file:
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(file.fileno(), 0, size)
                return array
            except OSError as error:
                if error.errno in _FULL:
                    raise
        file.seek(header := size - array.nbytes)
        for start in range(header, size, _BLOCK):
            file.write(bytes(min(_BLOCK, size - start)))
    return array


@contextmanager
def _one_line_errors(folder: Path, needed: int) -> Iterator[None]:
    """Say in a line that a disk is full or that a folder may not be written to, and how to take another."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            free = f"{shutil.disk_usage(folder).free / 1e6:,.1f} MB are free"
            raise OSError(f"no room in {folder}: {needed / 1e6:,.1f} MB are needed and {free}; {_MOVE}") from None
        if error.errno in _FORBIDDEN:
            raise OSError(f"{error.filename or folder}: {error.strerror}; {_MOVE}") from None
        raise


_Prepared = tuple[np.ndarray | None, tuple[int, int], Problem | None]


def _prepare(data: DataSet, rows: range, preparation: Preparation, pool: ThreadPoolExecutor) -> Iterator[_Prepared]:
    if data.draw is not None:
        for pixels in data.draw(list(rows)):
            raw = RawImage(np.moveaxis(pixels, 0, -1), (0.0, 255.0))
            yield preparation.levels(raw).numpy(), raw.pixels.shape[:2], None
        return

    def small(raw: RawImage) -> _Prepared:
        return preparation.levels(raw).numpy(), raw.pixels.shape[:2], None

    yield from in_shares(pool, lambda case: _read(case, small), [data.cases[row] for row in rows])


def _read(case: Case, prepare: Callable[[RawImage], _Prepared]) -> _Prepared:
    try:
        return prepare_image(case.image, case.frame, prepare)
    except (OSError, ValueError) as error:
        return None, (0, 0), Problem(case.name, case.row, str(error).removeprefix(f"{case.image} "))


def _digests(data: DataSet, folder: Path) -> list[str]:
    """What each file holds, in short. A file of the same size and time as before is not read again."""
    if data.draw is not None:
        sample = data.draw(list(range(min(8, len(data)))))
        drawn = hashlib.blake2b(np.ascontiguousarray(sample).tobytes(), digest_size=16).hexdigest()
        return [f"{drawn}#{case.name}" for case in data.cases]
    memory = folder / f"digests-{_FORMAT}-{hashlib.sha256(os.fsencode(data.root.resolve())).hexdigest()[:16]}.json"
    try:
        known = _read_json(memory) if memory.is_file() else {}
    except _DamagedError as error:
        _log.warning("%s; the files are read again", error)
        known = {}
    found = {}
    for path in sorted({case.image for case in data.cases}):
        try:
            status = path.stat()
            stamp = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
            found[path] = stamp, known.get(stamp) or _digest(path)
        except OSError:
            found[path] = str(path), f"unreadable {path}"
    fresh = dict(found.values())
    if fresh != known:
        _write_json(memory, fresh)
    return [found[c.image][1] if c.frame is None else f"{found[c.image][1]}#{c.frame}" for c in data.cases]


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _key(data: DataSet, preparation: Preparation, digests: Sequence[str]) -> str:
    content = hashlib.sha256()
    content.update(json.dumps([_FORMAT, preparation.to_dict(), len(data)], sort_keys=True).encode())
    for digest in digests:
        content.update(digest.encode(errors="surrogatepass") + b"\n")
    return content.hexdigest()[:24]
