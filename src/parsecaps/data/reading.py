"""From a file to pixels, for training, prediction and serving alike.

The first bytes tell the format. Files are decoded in another process (`data.reader_pool`): the second half of this file
runs there. Every error is a ValueError (or FileNotFoundError) of one line that names the file and what to do.
"""

import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, suppress
from functools import wraps
from itertools import chain
from operator import itemgetter
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from parsecaps.data import dicom, nifti, raster
from parsecaps.data.raw_image import GZIP, DefectError, Format, RawImage
from parsecaps.data.reader_pool import READERS, RefusedError, call
from parsecaps.data.sources import affnist, cemri, mnist

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
_LARGE_BYTES = 2**26
_HEAD_BYTES = 4096
_UNPACKED_BYTES = 400
_TRIED = 3  # frames of a file that are tried before it is refused as a whole
_large_image = Lock()

# In the order in which they are tried: before the mark of a DICOM there may be anything, a TIFF's header too.
FORMATS: tuple[Format, ...] = (dicom.FORMAT, *raster.FORMATS, nifti.FORMAT, cemri.FORMAT, mnist.FORMAT, affnist.FORMAT)


class Contents(NamedTuple):
    """How many images a file holds, and the id of the patient that it names itself, blank where it names none."""

    frames: int
    patient: str


def read_image(path: str | Path, frame: int | None = None) -> RawImage:
    """Read an image, upright; `frame` counts from 0 and is needed where a file holds several."""
    return RawImage(*ask(decode_image, path, frame))


def prepare_image(path: str | Path, frame: int | None, prepare: Callable[[RawImage], T]) -> T:
    """Read an image and make something small of it; of large images one at a time is in memory, whoever asks."""
    with ExitStack() as alone:

        def expect(num_bytes: int) -> None:
            if num_bytes > _LARGE_BYTES:
                alone.enter_context(_large_image)

        return prepare(RawImage(*ask(decode_image, path, frame, expect=expect)))


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


def look_into(path: str | Path) -> Contents:
    """How many images a file holds, and its patient; refused if its header is wrong or its first images unreadable."""
    with suppress(DefectError, OSError, zlib.error):  # a reader says what is wrong
        if recognise(Path(path)).single:
            return Contents(1, "")
    return Contents(*ask(contents_of, path))


def is_known_format(path: str | Path) -> bool:
    """Whether the first bytes of a file are those of an image that can be read."""
    with suppress(DefectError, zlib.error):
        return bool(recognise(Path(path)))
    return False


def ask(function: Callable[..., Any], path: str | Path, *arguments: Any, **options: Any) -> Any:
    """Let a reader call a function of a file; all errors name the file."""
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
        kind = "cannot be read"
        with suppress(Exception):  # what its first bytes are cannot be told either
            kind = f"is a damaged {recognise(Path(path)).name}"
        raise ValueError(f"{path} {kind} ({refused}); replace the file") from None


def in_reader(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function of a file run in a reader, which calls what it wraps."""

    @wraps(function)
    def asked(*arguments: P.args, **options: P.kwargs) -> T:
        found: T = ask(function, *arguments, **options)  # type: ignore[arg-type]
        return found

    return asked


def decode_image(path: Path, frame: int | None) -> RawImage:
    """The image, or a frame of several, upright and finite."""
    return _decode(recognise(path), path, frame)


@in_reader
def read_mask(path: Path, frame: int | None = None) -> NDArray[np.bool_]:
    """Read a mask (H, W): every pixel that is not black, or brighter than half in a JPEG; the tumour of CE-MRI."""
    form = recognise(path)
    pixels = _checked(form.read_mask(path) if form.read_mask else form.read(path, frame).pixels)
    brightest = pixels.max(axis=2) if pixels.ndim == 3 else pixels
    return brightest > form.black


def contents_of(path: Path) -> Contents:
    """What the file holds; refused as a whole where its header cannot be true, or none of its first images is one."""
    form = recognise(path)
    frames = form.count(path)
    if frames < 1:
        raise DefectError(f"says that it has {frames} frames; replace the file")
    reasons = []
    for frame in range(min(frames, _TRIED)) if frames > 1 else ():
        try:
            _decode(form, path, frame)
            break
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # the libraries raise nearly anything
            reasons.append(error)
    else:
        if reasons:
            raise reasons[0]
    return Contents(frames, form.patient(path))


@in_reader
def image_size(path: Path) -> tuple[int, int]:
    """Height and width as `read_image` gives them, from the header where the format allows."""
    return recognise(path).size(path)


@in_reader
def mislabelled(path: Path) -> str | None:
    """What is wrong with the name of a file that is named as another format, else None."""
    form, name = recognise(path), path.name.lower()
    if name.endswith(form.suffixes):
        return None
    named = " or ".join(sorted({other.name for other in FORMATS if name.endswith(other.suffixes)}))
    return f"is a {form.name} but named as {named}; rename it to {form.suffixes[0]}" if named else None


def recognise(path: Path) -> Format:
    """The format of a file, by its first bytes."""
    if not path.is_file():
        raise DefectError("is not a file; give the path of one image")
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise DefectError("is empty; replace the file")
    packed = head.startswith(GZIP)
    unpacked = zlib.decompressobj(wbits=31).decompress(head, _UNPACKED_BYTES) if packed else head
    for form in FORMATS:
        if form.recognise(unpacked) and (form.packed or not packed):
            return form
    names = ", ".join(form.name for form in FORMATS)
    raise DefectError(f"is not an image of a known format (it begins with {head[:12]!r}); give one of {names}")


def _decode(form: Format, path: Path, frame: int | None) -> RawImage:
    raw = form.read(path, frame)
    if raw.full_range is not None and not np.isfinite(raw.full_range).all():
        raise DefectError(f"has a range of grey values from {raw.full_range[0]} to {raw.full_range[1]}; replace it")
    return raw._replace(pixels=_checked(raw.pixels))


def _checked(pixels: NDArray[Any]) -> NDArray[Any]:
    """Contiguous, writable and in the machine's byte order; finite, and of a shape that is an image."""
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3) or not pixels.size:
        raise DefectError(f"has pixels of shape {pixels.shape}; give (height, width) or (height, width, 3)")
    if pixels.dtype.kind == "f":
        with np.errstate(over="ignore"):
            pixels = pixels.astype(np.float32, copy=False)
        if not np.isfinite(pixels).all():
            raise DefectError(f"has {int((~np.isfinite(pixels)).sum())} pixels that are not finite; replace the file")
    return np.require(pixels, pixels.dtype.newbyteorder("="), ["C", "W"])
