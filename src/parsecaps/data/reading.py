"""The one way from a file to pixels, for training, prediction and serving alike.

What a file is, its first bytes say, not its name. Whatever is wrong with it, the error is a ValueError (or
FileNotFoundError) of one line that names the file and what to do; no library's own exception or warning comes through.
MONAI, whose readers open the files, takes some seconds to import and is imported with the first image.
"""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data import dicom, nifti, raster
from parsecaps.data.raw_image import DefectError, Format, RawImage, silence
from parsecaps.data.sources import affnist, cemri, mnist

__all__ = [
    "FORMATS",
    "RawImage",
    "count_frames",
    "image_size",
    "is_known_format",
    "mislabelled",
    "read_image",
    "read_mask",
    "read_patient",
]

_HEAD_BYTES = 4096
_UNPACKED_BYTES = 400


# In the order in which they are tried: before the mark of a DICOM there may be anything, a TIFF's header too.
FORMATS: tuple[Format, ...] = (dicom.FORMAT, *raster.FORMATS, nifti.FORMAT, cemri.FORMAT, mnist.FORMAT, affnist.FORMAT)


def read_image(path: str | Path, frame: int | None = None) -> RawImage:
    """Read an image, upright; `frame` counts from 0 and is needed where a file holds several."""
    with _named(path) as (file, form):
        raw = form.read(file, frame)
        return raw._replace(pixels=_checked(raw.pixels))


def read_mask(path: str | Path, frame: int | None = None) -> NDArray[np.bool_]:
    """Read a mask (H, W): every pixel that is not black, or brighter than half in a JPEG, whose black is noisy.

    Of a CE-MRI file it is the tumour.
    """
    with _named(path) as (file, form):
        pixels = _checked(form.read_mask(file) if form.read_mask else form.read(file, frame).pixels)
        brightest = pixels.max(axis=2) if pixels.ndim == 3 else pixels
        return brightest > form.black


def is_known_format(path: str | Path) -> bool:
    """Whether the first bytes of a file are those of an image that can be read."""
    try:
        _recognise(Path(path))
    except (DefectError, zlib.error):
        return False
    return True


def count_frames(path: str | Path) -> int:
    """The number of images that a file holds, from its header where the format allows."""
    with _named(path) as (file, form):
        return form.count(file)


def image_size(path: str | Path) -> tuple[int, int]:
    """Height and width as `read_image` gives them, from the header where the format allows."""
    with _named(path) as (file, form):
        return form.size(file)


def read_patient(path: str | Path) -> str:
    """The id of the patient that the file itself names, blank where it names none."""
    with _named(path) as (file, form):
        return form.patient(file)


def mislabelled(path: str | Path) -> str | None:
    """Say in one line that a file is named as another format than it is, or None; it is read all the same."""
    with _named(path) as (file, form):
        name = file.name.lower()
        if name.endswith(form.suffixes):
            return None
        claimed = {other.name for other in FORMATS if name.endswith(other.suffixes)}
        named = " or ".join(sorted(claimed))
        return f"{file} is a {form.name} but named as {named}; rename it to {form.suffixes[0]}" if claimed else None


@contextmanager
def _named(path: str | Path) -> Iterator[tuple[Path, Format]]:
    """The file and its format; whatever goes wrong inside becomes an error that names the file."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing; check its path")
    form = None
    try:
        if not path.is_file():
            raise DefectError("is not a file; give the path of one image")
        with silence():
            form = _recognise(path)
            yield path, form
    except DefectError as defect:
        raise ValueError(f"{path} {defect}") from None
    except Exception as error:  # the libraries raise nearly anything at a broken file
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        kind = f"is a damaged {form.name}" if form else "cannot be read"
        raise ValueError(f"{path} {kind} ({reason}); replace the file") from error


def _recognise(path: Path) -> Format:
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head:
        raise DefectError("is empty; replace the file")
    packed = head.startswith(b"\x1f\x8b")
    unpacked = zlib.decompressobj(wbits=31).decompress(head, _UNPACKED_BYTES) if packed else head
    for form in FORMATS:
        if form.recognise(unpacked) and (form.packed or not packed):
            return form
    names = ", ".join(form.name for form in FORMATS)
    raise DefectError(f"is not an image of a known format (it begins with {head[:12]!r}); give one of {names}")


def _checked(pixels: NDArray[Any]) -> NDArray[Any]:
    """Contiguous, writable and in the machine's byte order; finite, and of a shape that is an image."""
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] != 3) or not pixels.size:
        raise DefectError(f"has pixels of shape {pixels.shape}; give (height, width) or (height, width, 3)")
    if pixels.dtype.kind == "f":
        with np.errstate(over="ignore"):
            pixels = pixels.astype(np.float32, copy=False)
        if not np.isfinite(pixels).all():
            raise DefectError(
                f"has {int((~np.isfinite(pixels)).sum())} pixels that are not finite; replace them by numbers"
            )
    return np.require(pixels, pixels.dtype.newbyteorder("="), ["C", "W"])
