"""The one way from a file to pixels, for training, prediction and serving alike.

What a file is, its first bytes say, not its name. Whatever is wrong with it, the error is a ValueError (or
FileNotFoundError) of one line that names the file and what to do; no library's own exception or warning comes through.
MONAI, whose readers open the files, takes some seconds to import and is imported with the first image.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parsecaps.data import containers, dicom, nifti, raster
from parsecaps.data.raw_image import DefectError, RawImage, silence

__all__ = [
    "FORMATS",
    "RawImage",
    "count_frames",
    "image_size",
    "mislabelled",
    "read_image",
    "read_mask",
    "read_patient",
]

_HEAD_BYTES = 4096
_UNPACKED_BYTES = 400


class Format(NamedTuple):
    """A format: what to call it, how its files are named, and how to read a frame, their number and their size.

    `patient` reads who it is about, where a format can say that.
    """

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Path, int | None], RawImage]
    count: Callable[[Path], int]
    size: Callable[[Path], tuple[int, int]]
    patient: Callable[[Path], str] = lambda path: ""


def _raster(name: str, *suffixes: str) -> Format:
    return Format(name, suffixes, raster.read, raster.count_frames, raster.image_size)


_PNG = _raster("PNG", ".png")
_JPEG = _raster("JPEG", ".jpg", ".jpeg")
_BMP = _raster("BMP", ".bmp")
_TIFF = _raster("TIFF", ".tif", ".tiff")
_DICOM = Format("DICOM", (".dcm", ".dicom"), dicom.read, dicom.count_frames, dicom.image_size, dicom.patient_id)
_NIFTI = Format("NIfTI", (".nii", ".nii.gz"), nifti.read, nifti.count_frames, nifti.image_size)
_CEMRI = Format(
    "CE-MRI .mat", (".mat",), containers.read_cemri, lambda path: 1, containers.cemri_size, containers.cemri_patient
)
_IDX = Format("IDX", ("ubyte", "ubyte.gz"), containers.read_idx, containers.count_idx, containers.idx_size)
_AFFNIST = Format("affNIST .mat", (".mat",), containers.read_affnist, containers.count_affnist, containers.affnist_size)
FORMATS = (_PNG, _JPEG, _BMP, _TIFF, _DICOM, _NIFTI, _CEMRI, _IDX, _AFFNIST)


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
        if form is _CEMRI:
            return _checked(containers.read_cemri_mask(file)) > 0
        pixels = _checked(form.read(file, frame).pixels)
        brightest = pixels.max(axis=2) if pixels.ndim == 3 else pixels
        return brightest > (127 if form is _JPEG else 0)


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
    form = _unpacked_format(head) if head.startswith(b"\x1f\x8b") else _format(head)
    if form is None:
        names = ", ".join(form.name for form in FORMATS)
        raise DefectError(f"is not an image of a known format (it begins with {head[:12]!r}); give one of {names}")
    return form


def _unpacked_format(head: bytes) -> Format | None:
    form = _format(zlib.decompressobj(wbits=31).decompress(head, _UNPACKED_BYTES))
    return form if form in (_NIFTI, _IDX) else None


def _format(head: bytes) -> Format | None:
    if head[128:132] == b"DICM":  # first: the 128 bytes before may be anything, a TIFF's header too
        return _DICOM
    starts = {
        b"\x89PNG\r\n\x1a\n": _PNG,
        b"\xff\xd8\xff": _JPEG,
        b"BM": _BMP,
        b"II*\0": _TIFF,
        b"MM\0*": _TIFF,
        b"II+\0": _TIFF,
        b"MM\0+": _TIFF,
        b"\0\0\x08\x03": _IDX,
        b"MATLAB 5.0 MAT-file": _AFFNIST,
        b"\x89HDF\r\n\x1a\n": _CEMRI,
    }
    for start, form in starts.items():
        if head.startswith(start):
            return form
    if head[512:520] == b"\x89HDF\r\n\x1a\n":  # MATLAB writes 512 bytes of its own first
        return _CEMRI
    if head[344:348] == b"n+1\0" or head[4:8] == b"n+2\0":
        return _NIFTI
    # a DICOM without its preamble begins with a tag of group 2 or 8
    return _DICOM if head[:2] in (b"\x02\0", b"\x08\0") and head[3:4] == b"\0" else None


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
