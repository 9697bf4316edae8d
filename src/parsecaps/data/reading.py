"""The one way from a file to pixels, for training, prediction and serving alike.

What a file is, its first bytes say, not its name. A file from outside is decoded in a process of its own, within limits
of time and memory (`data.reader_pool`). Whatever is wrong with it, the error is a ValueError (or FileNotFoundError) of
one line that names the file and what to do; no library's own exception or warning comes through.
"""

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from itertools import chain
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from parsecaps.data import decoding, dicom_header
from parsecaps.data.decoding import FORMATS, Contents
from parsecaps.data.raw_image import DefectError, RawImage
from parsecaps.data.reader_pool import READERS, RefusedError, call

__all__ = [
    "FORMATS",
    "READERS",
    "Contents",
    "RawImage",
    "image_size",
    "in_shares",
    "is_known_format",
    "look_into",
    "mislabelled",
    "prepare_image",
    "read_dicom_header",
    "read_image",
    "read_mask",
]

S = TypeVar("S")
T = TypeVar("T")
_LARGE_BYTES = 2**26
_large_image = Lock()


def read_image(path: str | Path, frame: int | None = None) -> RawImage:
    """Read an image, upright; `frame` counts from 0 and is needed where a file holds several."""
    return _raw(_read(decoding.decode_image, path, frame))


def prepare_image(path: str | Path, frame: int | None, prepare: Callable[[RawImage], T]) -> T:
    """Read an image and make something small of it; of large images one at a time is in memory, whoever asks."""
    with ExitStack() as alone:

        def expect(num_bytes: int) -> None:
            if num_bytes > _LARGE_BYTES:
                alone.enter_context(_large_image)

        return prepare(_raw(_read(decoding.decode_image, path, frame, expect=expect)))


def in_shares(threads: Executor, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """A function of each item, in order; each thread has a reader of its own and takes an equal share of the items.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor(READERS) as threads:
    ...     in_shares(threads, abs, [-1, 2, -3])
    [1, 2, 3]
    """
    parts = [range(i, len(items), READERS) for i in range(READERS)]
    found = threads.map(lambda part: [(i, function(items[i])) for i in part], parts)
    return [value for _, value in sorted(chain.from_iterable(found), key=itemgetter(0))]


def read_mask(path: str | Path, frame: int | None = None) -> NDArray[np.bool_]:
    """Read a mask (H, W): every pixel that is not black, or brighter than half in a JPEG, whose black is noisy.

    Of a CE-MRI file it is the tumour.
    """
    mask: NDArray[np.bool_] = _read(decoding.decode_mask, path, frame)
    return mask


def look_into(path: str | Path) -> Contents:
    """How many images a file holds, and the patient it names.

    A file is refused as a whole where its header cannot be true, or where none of its first images can be read.
    """
    with suppress(DefectError, OSError, zlib.error):  # a reader says what is wrong
        if decoding.recognise(Path(path)).single:
            return Contents(1, "")
    return Contents(*_read(decoding.look_into, path))


def is_known_format(path: str | Path) -> bool:
    """Whether the first bytes of a file are those of an image that can be read."""
    try:
        decoding.recognise(Path(path))
    except (DefectError, zlib.error):
        return False
    return True


def image_size(path: str | Path) -> tuple[int, int]:
    """Height and width as `read_image` gives them, from the header where the format allows."""
    height, width = _read(decoding.frame_size, path)
    return height, width


def read_dicom_header(path: str | Path, frame: int | None = None) -> str | None:
    """What new objects beside a DICOM image repeat of its header (`data.dicom_header`); None: it is not a DICOM."""
    header: str | None = _read(dicom_header.header_of, path, frame)
    return header


def mislabelled(path: str | Path) -> str | None:
    """Say in one line that a file is named as another format than it is, or None; it is read all the same."""
    wrong = _read(decoding.other_name, path)
    return None if wrong is None else f"{path} {wrong}"


def _raw(answer: list[Any]) -> RawImage:
    pixels, full_range = answer
    return RawImage(pixels, None if full_range is None else (full_range[0], full_range[1]))


def _read(function: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any) -> Any:
    """What a function says of a file; whatever goes wrong becomes an error that names the file."""
    try:
        if not Path(path).exists():
            raise FileNotFoundError(f"{path} is missing; check its path")
    except PermissionError:
        raise ValueError(f"{path} may not be read; allow reading its folder, or leave it out") from None
    try:
        return call(function, path, *arguments, **options)
    except RefusedError as refused:
        if not refused.damaged:
            raise ValueError(f"{path} {refused}") from None
        raise ValueError(f"{path} {_kind(Path(path))} ({refused}); replace the file") from None


def _kind(path: Path) -> str:
    try:
        return f"is a damaged {decoding.recognise(path).name}"
    except Exception:  # what its first bytes are cannot be told either
        return "cannot be read"
