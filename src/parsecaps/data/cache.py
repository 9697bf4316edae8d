"""Prepared images in a file that is mapped into memory.

A cache is one safetensors file, named after the content of the image files and their preparation. It takes its name
when it is whole; of two processes that want the same one, the second waits for the first. A damaged one, by its
checksum, is made again. No other user may read it: these are images of patients.
"""

import errno
import hashlib
import json
import logging
import math
import os
import re
import shutil
import stat
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
import torch
from filelock import FileLock, Timeout

from parsecaps.data.cases import Case, DataSet, Problem
from parsecaps.data.leaks import Fingerprints, fingerprint
from parsecaps.data.preparation import Preparation
from parsecaps.data.raw_image import RawImage
from parsecaps.data.reader_pool import READERS
from parsecaps.data.reading import in_shares, prepare_image
from parsecaps.files.untrusted import checked, read_document
from parsecaps.files.writing import make_private_folder, remove_files, unfinished_pattern, write_binary, write_text
from parsecaps.types import ProgressCallback, silent

_FORMAT = 3  # another number for another layout of the files below
_HEADER = 1024  # bytes before the arrays
_CHUNK = 64  # images prepared between two writes
_SET = r"([0-9a-f]{24})\.(?:safetensors|json|(?:images|bits|thumbnails)\.npy)"  # the last are of earlier versions
_DIGESTS = r"digests-[0-9]+-[0-9a-f]{16}\.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MOVE = "PARSECAPS_CACHE=FOLDER keeps the prepared images in another folder"
_blake = partial(hashlib.blake2b, digest_size=16)
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
        - digests: N texts, the same for equal files
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

    A user without a home, as in a container, has one for temporary files, taken only if it is closed to others.
    """
    if chosen := os.environ.get("PARSECAPS_CACHE"):
        return Path(chosen)
    with suppress(RuntimeError):  # neither HOME nor the list of users knows
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "parsecaps")
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
    """Every image of the data set, prepared; from the cache if possible.

    Files that cannot be read raise one `BadDataError`, or with `skip_bad` are named in `problems`.
    """
    folder = cache_folder() if folder is None else folder
    needed = _HEADER + sum(map(math.prod, _shapes(data, preparation).values()))
    with _one_line_errors(folder, needed):
        make_private_folder(folder)
        digests = _digests(data, folder)
        path = folder / f"{_key(data, preparation, digests)}.safetensors"
        with FileLock(path.with_suffix(".lock"), mode=0o600):  # let go by the system, also when a process is killed
            prepared = _find(data, preparation, path, digests)
            if prepared is None:
                remove_files(folder, unfinished_pattern(re.escape(path.name)))  # of a process that was killed
                with write_binary(path, private=True) as file:
                    _reserve(file, needed)
                    _write(data, preparation, file, progress)
                prepared = _open(data, preparation, path, digests)
    if prepared.problems and not skip_bad:
        raise BadDataError(prepared.problems)
    return prepared


def _find(data: DataSet, preparation: Preparation, path: Path, digests: list[str]) -> PreparedImages | None:
    """The cache, if it is whole and no bad file has become readable, by a new plugin for instance."""
    if not path.is_file():
        return None
    try:
        prepared = _open(data, preparation, path, digests)
    except ValueError as error:
        _log.warning("%s; the images are prepared again", error)
        return None
    bad = [case for case, size in zip(data.cases, prepared.sizes, strict=True) if size == (0, 0)]
    return prepared if all(_read(case, lambda raw: (None, (1, 1), None))[2] for case in bad) else None


def _open(data: DataSet, preparation: Preparation, path: Path, digests: list[str]) -> PreparedImages:
    shapes = _shapes(data, preparation)
    try:
        content = np.memmap(path, np.uint8, "r")
        arrays = content[_HEADER:]
        shapes["about"] = (len(arrays) - sum(map(math.prod, shapes.values())),)
        if content[:_HEADER].tobytes() != _header(shapes, zlib.crc32(arrays.data)):
            raise ValueError
    except PermissionError:
        raise
    except (OSError, ValueError):
        raise ValueError(f"the cache is damaged: {path} is not as it was written") from None
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    images, bits, thumbnails, about = (
        part.reshape(shape) for part, shape in zip(np.split(arrays, ends[:-1]), shapes.values(), strict=True)
    )
    sizes, problems = json.loads(about.tobytes())
    found = [Problem(*problem) for problem in problems]
    return PreparedImages(images, Fingerprints(bits, thumbnails), [*map(tuple, sizes)], digests, found)


def _write(data: DataSet, preparation: Preparation, file: BinaryIO, progress: ProgressCallback) -> None:
    """Write the images as they are prepared, then what is known of them, and last the header with its checksum."""
    shapes, count, checksum = _shapes(data, preparation), len(data), 0
    bits, thumbnails = (np.zeros(shapes[name], np.uint8) for name in ("bits", "thumbnails"))
    sizes: list[tuple[int, int]] = []
    problems: list[Problem] = []
    file.write(bytes(_HEADER))
    with ThreadPoolExecutor(READERS) as pool:
        for start in range(0, count, _CHUNK):
            rows = range(start, min(start + _CHUNK, count))
            images = np.zeros((len(rows), *shapes["images"][1:]), np.uint8)
            for image, (pixels, size, problem) in zip(images, _prepare(data, rows, preparation, pool), strict=True):
                image[:] = 0 if pixels is None else pixels
                sizes.append(size)
                problems += [] if problem is None else [problem]
            bits[start : rows.stop], thumbnails[start : rows.stop] = fingerprint(torch.from_numpy(images).float() / 255)
            checksum = zlib.crc32(images.data, checksum)
            file.write(images.data)
            progress(rows.stop, count)
    about = json.dumps([sizes, problems]).encode()
    for part in (bits.data, thumbnails.data, about):
        checksum = zlib.crc32(part, checksum)
        file.write(part)
    file.seek(0)
    file.write(_header(shapes | {"about": (len(about),)}, checksum))


def _shapes(data: DataSet, preparation: Preparation) -> dict[str, tuple[int, ...]]:
    """The arrays of bytes in a file, in their order; `about` follows them, a JSON text."""
    side, count = preparation.size, len(data)
    return {"images": (count, preparation.channels, side, side), "bits": (count, 32), "thumbnails": (count, 256)}


def _header(shapes: Mapping[str, tuple[int, ...]], checksum: int) -> bytes:
    """The header of a safetensors file with these arrays, always of the same length."""
    entries: dict[str, object] = {"__metadata__": {"checksum": str(checksum)}}
    place = 0
    for name, shape in shapes.items():
        offsets = [place, place := place + math.prod(shape)]
        entries[name] = {"dtype": "U8", "shape": shape, "data_offsets": offsets}
    length = _HEADER - 8
    return length.to_bytes(8, "little") + json.dumps(entries).encode().ljust(length)


def _reserve(file: BinaryIO, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(file.fileno(), 0, size)
        except OSError as error:
            if error.errno in _FULL:
                raise


@contextmanager
def _one_line_errors(folder: Path, needed: int) -> Iterator[None]:
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


def _prepare(data: DataSet, rows: range, preparation: Preparation, pool: ThreadPoolExecutor) -> Iterable[_Prepared]:
    def small(raw: RawImage) -> _Prepared:
        return preparation.levels(raw).numpy(), raw.pixels.shape[:2], None

    if data.draw is not None:
        drawn = np.moveaxis(data.draw(list(rows)), 1, -1)
        return (small(RawImage(pixels, (0.0, 255.0))) for pixels in drawn)
    return in_shares(pool, lambda case: _read(case, small), [data.cases[row] for row in rows])


def _read(case: Case, prepare: Callable[[RawImage], _Prepared]) -> _Prepared:
    try:
        return prepare_image(case.image, case.frame, prepare)
    except (OSError, ValueError) as error:
        return None, (0, 0), Problem(case.name, case.row, str(error).removeprefix(f"{case.image} "))


def _digests(data: DataSet, folder: Path) -> list[str]:
    """A hash of each file; one of the same size and time as before is not read again."""
    if data.draw is not None:
        sample = data.draw(list(range(min(8, len(data)))))
        drawn = _blake(np.ascontiguousarray(sample).tobytes()).hexdigest()
        return [f"{drawn}#{case.name}" for case in data.cases]
    memory = folder / f"digests-{_FORMAT}-{hashlib.sha256(os.fsencode(data.root.resolve())).hexdigest()[:16]}.json"
    try:
        content = read_document(memory, "its files are read again") if memory.is_file() else {}
        stored = checked(dict[str, str], content, memory, "its files are read again")
    except ValueError as error:
        _log.warning("the cache is damaged: %s", error)
        stored = {}
    found, known = {}, dict(stored)
    for path in sorted({case.image for case in data.cases}):
        try:
            status = path.stat()
            stamp = f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
            if stamp not in known:
                with open(path, "rb") as file:
                    known[stamp] = hashlib.file_digest(file, _blake).hexdigest()
            found[path] = stamp, known[stamp]
        except OSError:
            found[path] = str(path), f"unreadable {path}"
    fresh = dict(found.values())
    if fresh != stored:
        write_text(memory, json.dumps(fresh), private=True)
    return [found[c.image][1] if c.frame is None else f"{found[c.image][1]}#{c.frame}" for c in data.cases]


def _key(data: DataSet, preparation: Preparation, digests: Sequence[str]) -> str:
    about = json.dumps([_FORMAT, preparation.to_dict(), len(data)], sort_keys=True)
    content = about + "".join(f"{digest}\n" for digest in digests)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()[:24]


class CacheSize(NamedTuple):
    """How many prepared data sets there are, and the bytes that they take."""

    sets: int
    bytes: int


def cache_size(folder: Path) -> CacheSize:
    """The size of what `prepare_all` wrote into a folder."""
    keys = _keys(folder)
    return CacheSize(len({*keys.values()} - {""}), sum(os.lstat(folder / name).st_size for name in keys))


def clear_cache(folder: Path) -> CacheSize:
    """Remove what `prepare_all` wrote into a folder, but for sets in use and locks; return the size of that."""
    before = cache_size(folder)
    for key in sorted({*_keys(folder).values()}):
        lock = FileLock(folder / f"{key}.lock", timeout=0, mode=0o600) if key else nullcontext()
        with suppress(Timeout), lock:
            for name in (name for name, own in _keys(folder).items() if own == key):
                (folder / name).unlink(missing_ok=True)
    after = cache_size(folder)
    return CacheSize(before.sets - after.sets, before.bytes - after.bytes)


def _keys(folder: Path) -> dict[str, str]:
    """The names of our files in a folder, each with its set; blank for digests."""
    if not folder.is_dir():
        return {}
    with os.scandir(folder) as entries:
        names = [each.name for each in entries if each.is_file(follow_symlinks=False)]
    whole = {name: re.sub(r"^\.(.*)\.[0-9]+\.tmp$", r"\1", name) for name in names}  # unfinished ones are called so
    found = {name: re.fullmatch(rf"{_SET}|{_DIGESTS}", text) for name, text in whole.items()}
    return {name: match[1] or "" for name, match in found.items() if match}
