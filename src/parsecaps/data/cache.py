"""Images decoded and prepared once, kept in a file that is mapped into memory instead of read.

A cache is named after what the files hold and how they are prepared, so a changed file or preparation gets another
one. It is written under another name and takes its own when it is whole; of two processes that want the same one,
the second waits for the first.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock

from parsecaps.data.cases import Case, DataSet, Problem
from parsecaps.data.files import write_atomically
from parsecaps.data.leaks import Fingerprints, fingerprint
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import RawImage, read_image, read_mask

_FORMAT = 1  # another number for another layout of the files below
_CHUNK = 64  # images prepared between two writes
_PARTS = ("images", "bits", "thumbnails")

Progress = Callable[[int, int], None]


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
    """Where caches are kept: `PARSECAPS_CACHE`, or the user's own folder for caches."""
    if chosen := os.environ.get("PARSECAPS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parsecaps"


def prepare_all(
    data: DataSet,
    preparation: Preparation,
    *,
    folder: Path | None = None,
    skip_bad: bool = False,
    progress: Progress = lambda done, total: None,
) -> PreparedImages:
    """Every image of the data set, prepared; from the cache where it is there, else made now.

    Files that cannot be read are refused all together (`BadDataError`), or with `skip_bad` named in `problems`.
    """
    folder = cache_folder() if folder is None else folder
    folder.mkdir(parents=True, exist_ok=True)
    digests = _digests(data, folder)
    key = _key(data, preparation, digests)
    with FileLock(folder / f"{key}.lock"):  # let go by the system, also when a process is killed
        if not _is_whole(data, folder, key):
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


def _is_whole(data: DataSet, folder: Path, key: str) -> bool:
    """Whether the cache is there, and no file it could not read has become readable (by a plugin, say)."""
    about = folder / f"{key}.json"
    if not about.is_file():
        return False
    sizes = json.loads(about.read_text(encoding="utf-8"))["sizes"]
    bad = [case for case, size in zip(data.cases, sizes, strict=True) if size == [0, 0]]
    return all(isinstance(_read(case), Problem) for case in bad)


def _open(folder: Path, key: str, digests: list[str]) -> PreparedImages:
    about = json.loads((folder / f"{key}.json").read_text(encoding="utf-8"))
    images, bits, thumbnails = (np.load(folder / f"{key}.{part}.npy", mmap_mode="r") for part in _PARTS)
    return PreparedImages(
        images,
        Fingerprints(bits, thumbnails),
        [(height, width) for height, width in about["sizes"]],
        digests,
        [Problem(*problem) for problem in about["problems"]],
    )


def _build(data: DataSet, preparation: Preparation, folder: Path, key: str, progress: Progress) -> None:
    """Write all parts under other names, give them their own, and last the one that says they are there."""
    for left in folder.glob(f"{key}.*.tmp"):  # of a run that was killed: the lock is ours, so nobody writes them
        left.unlink()
    side, count = preparation.size, len(data)
    shapes = ((count, preparation.channels, side, side), (count, 32), (count, 256))
    names = [folder / f"{key}.{part}.npy" for part in _PARTS]
    unfinished = [name.with_suffix(".tmp") for name in names]
    images, bits, thumbnails = (
        np.lib.format.open_memmap(name, mode="w+", dtype=np.uint8, shape=shape)
        for name, shape in zip(unfinished, shapes, strict=True)
    )
    sizes: list[tuple[int, int]] = []
    problems: list[Problem] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for start in range(0, count, _CHUNK):
            rows = range(start, min(start + _CHUNK, count))
            for row, (pixels, size, problem) in zip(rows, _prepare(data, rows, preparation, pool), strict=True):
                images[row] = 0 if pixels is None else pixels
                sizes.append(size)
                problems += [] if problem is None else [problem]
            block = torch.from_numpy(np.array(images[start : rows.stop])).float() / 255
            bits[start : rows.stop], thumbnails[start : rows.stop] = fingerprint(block)
            progress(rows.stop, count)
    for array, temporary, name in zip((images, bits, thumbnails), unfinished, names, strict=True):
        array.flush()
        os.replace(temporary, name)
    with write_atomically(folder / f"{key}.json") as file:
        json.dump({"sizes": sizes, "problems": problems, "preparation": preparation.to_dict()}, file)


_Prepared = tuple[np.ndarray | None, tuple[int, int], Problem | None]


def _prepare(data: DataSet, rows: range, preparation: Preparation, pool: ThreadPoolExecutor) -> Iterator[_Prepared]:
    if data.draw is not None:
        for pixels in data.draw(list(rows)):
            raw = RawImage(np.moveaxis(pixels, 0, -1), (0.0, 255.0))
            yield preparation.levels(raw).numpy(), raw.pixels.shape[:2], None
        return

    def one(case: Case) -> _Prepared:
        raw = _read(case)
        if isinstance(raw, Problem):
            return None, (0, 0), raw
        return preparation.levels(raw).numpy(), raw.pixels.shape[:2], None

    yield from pool.map(one, [data.cases[row] for row in rows])


def _read(case: Case) -> RawImage | Problem:
    try:
        return read_image(case.image, case.frame)
    except (OSError, ValueError) as error:
        return Problem(case.name, case.row, str(error).removeprefix(f"{case.image} "))


def _digests(data: DataSet, folder: Path) -> list[str]:
    """What each file holds, in short. A file of the same size and time as before is not read again."""
    if data.draw is not None:
        sample = data.draw(list(range(min(8, len(data)))))
        drawn = hashlib.blake2b(np.ascontiguousarray(sample).tobytes(), digest_size=16).hexdigest()
        return [f"{drawn}#{case.name}" for case in data.cases]
    memory = folder / f"digests-{hashlib.sha256(os.fsencode(data.root.resolve())).hexdigest()[:16]}.json"
    try:
        known = json.loads(memory.read_text(encoding="utf-8"))
    except (OSError, ValueError):
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
        with write_atomically(memory) as file:
            json.dump(fresh, file)
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
