"""From a file to pixels, in the process that calls it: the formats, and what every image is checked for.

`data.reading` is the way in: it calls what is here in a process of its own, because a file from outside may crash a
decoder, keep it busy for ever, or ask for all memory.
"""

import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsecaps.data import dicom, nifti, raster
from parsecaps.data.raw_image import DefectError, Format, RawImage
from parsecaps.data.sources import affnist, cemri, mnist

_HEAD_BYTES = 4096
_UNPACKED_BYTES = 400
_TRIED = 3  # frames of a file that are tried before it is refused as a whole

# In the order in which they are tried: before the mark of a DICOM there may be anything, a TIFF's header too.
FORMATS: tuple[Format, ...] = (dicom.FORMAT, *raster.FORMATS, nifti.FORMAT, cemri.FORMAT, mnist.FORMAT, affnist.FORMAT)


class Contents(NamedTuple):
    """How many images a file holds, and the id of the patient that it names itself, blank where it names none."""

    frames: int
    patient: str


def decode_image(path: Path, frame: int | None) -> RawImage:
    """The image, or a frame of several, upright and finite."""
    return _decode(recognise(path), path, frame)


def decode_mask(path: Path, frame: int | None) -> NDArray[np.bool_]:
    """The mask (H, W): every pixel that is not black, or brighter than half in a JPEG, whose black is noisy."""
    form = recognise(path)
    pixels = _checked(form.read_mask(path) if form.read_mask else form.read(path, frame).pixels)
    brightest = pixels.max(axis=2) if pixels.ndim == 3 else pixels
    return brightest > form.black


def look_into(path: Path) -> Contents:
    """What the file holds; refused as a whole where its header cannot be true, or none of its first images is one."""
    form = recognise(path)
    frames = form.count(path)
    if frames < 1:
        raise DefectError(f"says that it has {frames} frames; replace the file")
    if frames > 1:
        _try_frames(form, path, frames)
    return Contents(frames, form.patient(path))


def frame_size(path: Path) -> tuple[int, int]:
    """Height and width of an image, from the header where the format allows."""
    return recognise(path).size(path)


def other_name(path: Path) -> str | None:
    """What is wrong with the name of a file that is called as another format than it is; None where nothing is."""
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
    packed = head.startswith(b"\x1f\x8b")
    unpacked = zlib.decompressobj(wbits=31).decompress(head, _UNPACKED_BYTES) if packed else head
    for form in FORMATS:
        if form.recognise(unpacked) and (form.packed or not packed):
            return form
    names = ", ".join(form.name for form in FORMATS)
    raise DefectError(f"is not an image of a known format (it begins with {head[:12]!r}); give one of {names}")


def _try_frames(form: Format, path: Path, frames: int) -> None:
    """Refuse a file of which none of the first frames can be read: the others would only say the same again."""
    reasons = []
    for frame in range(min(frames, _TRIED)):
        try:
            _decode(form, path, frame)
            return
        except (MemoryError, RecursionError):
            raise
        except Exception as error:  # the libraries raise nearly anything
            reasons.append(error)
    raise reasons[0]


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
            raise DefectError(
                f"has {int((~np.isfinite(pixels)).sum())} pixels that are not finite; replace them by numbers"
            )
    return np.require(pixels, pixels.dtype.newbyteorder("="), ["C", "W"])
