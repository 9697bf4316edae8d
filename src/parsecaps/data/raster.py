"""PNG, JPEG, BMP and TIFF, by Pillow: MONAI's `PILReader` loses orientation, palette and transparency."""

from pathlib import Path

import numpy as np
from PIL import ExifTags, Image, TiffImagePlugin

from parsecaps.data.raw_image import (
    EIGHT_BIT,
    MAX_PIXELS,
    DefectError,
    Format,
    LastFiles,
    RawImage,
    check_size,
    pick_frame,
)

_PILLOW_FORMATS = ("PNG", "JPEG", "BMP", "TIFF")
_TURNS = ("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_270", "TRANSVERSE", "ROTATE_90")
_UPRIGHT = {orientation: Image.Transpose[turn] for orientation, turn in enumerate(_TURNS, 2)}
_LYING = {5, 6, 7, 8}  # orientations that swap height and width


def read(path: Path, frame: int | None) -> RawImage:
    """Read an image; `frame` is a page of a TIFF.

    Transparent pixels are laid over black; palettes, CMYK and YCbCr become RGB; 16 bits of a colour channel become 8.
    """
    image = _open(path)
    image.seek(pick_frame(frame, _num_frames(image)))
    check_size(image.height, image.width)
    orientation = _orientation(image)
    image.load()
    upright = image.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else image
    if _num_frames(image) == 1:
        _open.kept.cache_clear()  # its pixels would stay in memory with it
    return _pixels(upright, image)


def count_frames(path: Path) -> int:
    """The number of pages of a TIFF; 1 for all others."""
    return _num_frames(_open(path))


def image_size(path: Path) -> tuple[int, int]:
    """Height and width of the upright image, from the header."""
    image = _open(path)
    image.seek(0)
    height, width = check_size(image.height, image.width)
    return (width, height) if _orientation(image) in _LYING else (height, width)


@LastFiles  # stays open: from page to page of a TIFF is a step, from its start it is a walk
def _open(path: Path) -> Image.Image:
    try:
        image: Image.Image = Image.open(path, formats=_PILLOW_FORMATS)
    except Image.DecompressionBombError:
        raise DefectError(f"has more than {MAX_PIXELS // 1_000_000} million pixels; scale it down") from None
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        image.filename = ""  # mapped into memory, Pillow garbles an uncompressed TIFF that lies on its side
    return image


def _num_frames(image: Image.Image) -> int:
    """Only a TIFF has pages; the second picture in a phone's JPEG is a preview or a depth map."""
    return int(getattr(image, "n_frames", 1)) if image.format == "TIFF" else 1


def _orientation(image: Image.Image) -> int:
    """The camera's orientation from 1 to 8, from what stands before the pixels. Pillow turns a TIFF by itself."""
    if image.format == "TIFF":
        return 1
    try:
        return int(
            Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1)
        )  # a PNG's own `getexif` would decode the pixels
    except Exception:  # notes that cannot be read turn nothing
        return 1


def _pixels(image: Image.Image, opened: Image.Image) -> RawImage:
    if image.mode.startswith("I;16"):  # or 12 bits, in the TIFFs of some cameras
        tags = opened.tag_v2 if isinstance(opened, TiffImagePlugin.TiffImageFile) else {}
        bits = int(tags.get(TiffImagePlugin.BITSPERSAMPLE, (16,))[0])
        return RawImage(np.array(image).astype(np.uint16), (0.0, 2.0**bits - 1))
    if image.mode == "I":
        return RawImage(np.array(image), (0.0, 65535.0) if opened.format == "PNG" else None)
    if image.mode == "F":
        return RawImage(np.array(image), None)
    if image.has_transparency_data:
        grey = image.mode in {"1", "L", "LA", "La"}
        pixels = np.array(image.convert("LA" if grey else "RGBA")).astype(np.uint16)
        laid = ((pixels[:, :, :-1] * pixels[:, :, -1:] + 127) // 255).astype(np.uint8)  # colour times opacity
        return RawImage(laid[:, :, 0] if grey else laid, EIGHT_BIT)
    mode = "L" if image.mode in {"1", "L"} else "RGB"
    return RawImage(np.array(image if image.mode == mode else image.convert(mode)), EIGHT_BIT)


def _format(name: str, suffixes: tuple[str, ...], starts: tuple[bytes, ...], black: int = 0) -> Format:
    single, reads = name != "TIFF", (read, count_frames, image_size)
    return Format(name, suffixes, lambda head: head.startswith(starts), *reads, black=black, single=single)


FORMATS = (
    _format("PNG", (".png",), (b"\x89PNG\r\n\x1a\n",)),
    _format("JPEG", (".jpg", ".jpeg"), (b"\xff\xd8\xff",), black=127),  # the black of a JPEG is noisy
    _format("BMP", (".bmp",), (b"BM",)),
    _format("TIFF", (".tif", ".tiff"), (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")),
)
