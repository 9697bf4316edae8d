"""Small pictures of cases in one file, so that a page can show them where the images themselves are not at hand."""

import io
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

SIDE = 96  # pixels; smaller images keep their size
_QUALITY = 82
_LONG_AGO = (1980, 1, 1, 0, 0, 0)  # the same pictures make the same file


def write_thumbnails(
    path: str | Path,
    images: np.ndarray,
    rows: Sequence[int],
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> None:
    """Write a ZIP of JPEG files, `0.jpg` for the first of the rows and so on.

    Shapes:
        - images: (N, 1 or 3, size, size) uint8, as a cache maps them; only one is in memory at a time
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
            for place, row in enumerate(rows):
                archive.writestr(zipfile.ZipInfo(f"{place}.jpg", _LONG_AGO), jpeg(np.asarray(images[row])))
                progress(place + 1, len(rows))
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def read_thumbnails(path: str | Path, places: Sequence[int]) -> list[bytes]:
    """The JPEG files at these places, in this order."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; make the memory of the run again")
    try:
        with zipfile.ZipFile(path) as archive:
            return [archive.read(f"{place}.jpg") for place in places]
    except (KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} does not hold the pictures ({error}); make the memory of the run again") from None


def jpeg(image: np.ndarray) -> bytes:
    """An image (1 or 3, H, W) uint8 as a JPEG file of at most 96 pixels."""
    from PIL import Image

    picture = Image.fromarray(image[0] if len(image) == 1 else np.moveaxis(image, 0, -1))
    picture.thumbnail((SIDE, SIDE), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=_QUALITY)
    return file.getvalue()
