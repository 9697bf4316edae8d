"""What a file gives before it is prepared, what a format is, and the checks that every format shares."""

import gzip
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar, cast

from numpy.typing import NDArray

T = TypeVar("T")
# A larger image is refused from its header, before its pixels take memory.
MAX_PIXELS = 120_000_000
# A file of many images is decoded as a whole; a larger one is refused from its header.
MAX_CONTAINER_BYTES = 2**29
_MOST_PACKED = 1100  # times that a gzip can be smaller than what is in it, and a little more
GZIP = b"\x1f\x8b"  # how it begins
EIGHT_BIT = (0.0, 255.0)  # the full range of bytes


class RawImage(NamedTuple):
    """The pixels of an image as its file has them, upright.

    `full_range` is the values of black and white: 0 and 255 in 8 bits, 0 and 65535 in 16 bits, the window of a DICOM.
    It is None where the file does not say (MRI, NIfTI): then the content decides.

    Shapes:
        - pixels: (H, W), or (H, W, 3) for colour
    """

    pixels: NDArray[Any]
    full_range: tuple[float, float] | None


class Format(NamedTuple):
    """A file format: what to call it, how its files are named, and how to read a frame, their number and their size.

    `recognise` takes the first bytes of a file, unpacked where a `packed` format comes as gzip. `patient` reads its id,
    if the format has one. `read_mask` reads the mask that a file holds beside its image; without it, an image is read
    as a mask, values up to `black` being outside. A file of a `single` format is always one image without a patient.
    """

    name: str
    suffixes: tuple[str, ...]
    recognise: Callable[[bytes], bool]
    read: Callable[[Path, int | None], RawImage]
    count: Callable[[Path], int]
    size: Callable[[Path], tuple[int, int]]
    patient: Callable[[Path], str] = lambda path: ""
    read_mask: Callable[[Path], NDArray[Any]] | None = None
    black: int = 0
    packed: bool = False
    single: bool = False


class DefectError(Exception):
    """What is wrong with a file, without its name: `data.reading` turns it into a ValueError that names it."""


class LastFiles(Generic[T]):
    """Keeps what a function makes of the last files, until these change: frame after frame needs a file once."""

    def __init__(self, load: Callable[[Path], T], most: int = 1) -> None:
        self.kept = lru_cache(most)(lambda path, changed, num_bytes: load(path))

    def __call__(self, path: Path) -> T:
        stat = path.stat()
        return self.kept(path, stat.st_mtime_ns, stat.st_size)


def is_packed(path: Path) -> bool:
    """Whether a file is a gzip."""
    with path.open("rb") as file:
        return file.read(len(GZIP)) == GZIP


def open_unpacked(path: Path) -> IO[bytes]:
    """A file to read from, unpacked if it is a gzip."""
    return cast("IO[bytes]", gzip.open(path)) if is_packed(path) else path.open("rb")


def check_size(height: int, width: int) -> tuple[int, int]:
    """Height and width, unless there are no pixels or too many."""
    if height < 1 or width < 1:
        raise DefectError(f"is {width} x {height} pixels large; give an image with at least one pixel")
    if height * width > MAX_PIXELS:
        limit = MAX_PIXELS // 1_000_000
        raise DefectError(f"is {width} x {height} pixels large, above the limit of {limit} million; scale it down")
    return height, width


def check_bytes(num_bytes: int, cure: str = "split it") -> None:
    """Refuse a container that would not fit in memory."""
    if num_bytes > MAX_CONTAINER_BYTES:
        raise DefectError(f"unpacks to {num_bytes:,} bytes, above the limit of {MAX_CONTAINER_BYTES:,}; {cure}")


def check_length(path: Path, num_bytes: int, what: str) -> None:
    """Refuse a file that is too short for what its header says that there is."""
    there = path.stat().st_size
    if num_bytes // (_MOST_PACKED if is_packed(path) else 1) > there:
        raise DefectError(f"says that it has {what}, but is only {there:,} bytes long; replace the file")


def pick_frame(frame: int | None, num_frames: int) -> int:
    """The index of the image to read; without a number there must be only one."""
    if num_frames < 1:
        raise DefectError("has no frames; replace the file")
    if frame is None and num_frames > 1:
        raise DefectError(f"has {num_frames} frames and no frame was chosen; give a frame from 0 to {num_frames - 1}")
    if frame is not None and not 0 <= frame < num_frames:
        allowed = "leave the frame out" if num_frames == 1 else f"give a frame from 0 to {num_frames - 1}"
        raise DefectError(f"has {num_frames} frame{'s' * (num_frames > 1)}, so there is no frame {frame}; {allowed}")
    return frame or 0


def image_of(images: NDArray[Any], frame: int | None) -> RawImage:
    """One of the images (N, H, W) of bytes in a file that is decoded as a whole."""
    return RawImage(images[pick_frame(frame, len(images))].copy(), EIGHT_BIT)
