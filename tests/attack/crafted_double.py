"""Files that are two things at once, or move: polyglots, animations, and pictures with a second one inside."""

import zipfile
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path

from PIL import Image

from tests.attack.crafted import Crafted, png, tiff, tiff_page
from tests.attack.crafted_dicom import dicom
from tests.data.image_files import colour, grey

_SCRIPT = b"<html><script>alert(1)</script></html>"


def crafted_double() -> Iterator[Crafted]:
    """Those that are read as the first thing they are, as one image; and those of formats that are not read."""
    for name, data in _answered().items():
        yield Crafted("two in one", name, partial(_write, data), frames=1)
    for name, data in _refused().items():
        yield Crafted("two in one", name, partial(_write, data), refused=True)


def _answered() -> dict[str, bytes]:
    jpeg, picture = _saved("JPEG"), png(8, 8)
    return {
        "animated.png": _saved("PNG", save_all=True, append_images=_frames()[1:]),
        "two pictures.jpg": _saved("MPO", save_all=True, append_images=_frames()[1:]),
        "picture and archive.png": picture + _archive(),
        "picture and page.jpg": jpeg + _SCRIPT,
        "picture and picture.jpg": jpeg + picture,
        "page in a note.jpg": jpeg[:2] + b"\xff\xfe" + (len(_SCRIPT) + 2).to_bytes(2, "big") + _SCRIPT + jpeg[2:],
        "picture named as another.dcm": picture,
        "dicom and tiff.tif": tiff(tiff_page(0))[:8].ljust(128, b"\0") + dicom()[128:],
        "dicom and program.dcm": b"MZ".ljust(128, b"\0") + dicom()[128:],
    }


def _refused() -> dict[str, bytes]:
    jpeg = _saved("JPEG")
    return {
        "animated.gif": _saved("GIF", save_all=True, append_images=_frames()[1:]),
        "animated.png.gif": _saved("GIF"),
        "moving.webp": b"RIFF\x20\0\0\0WEBPVP8X\x0a\0\0\0\x02" + bytes(15),
        "script.png": b"GIF89a=1;/*" + jpeg + b"*/alert(1)",
        "document.jpg": b"%PDF-1.4\n" + jpeg,
        "archive.png": _archive() + png(8, 8),
        "page.jpg": _SCRIPT + jpeg,
        "drawing.png": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
    }


def _frames() -> list[Image.Image]:
    return [Image.fromarray(colour()), Image.fromarray(colour()[::-1].copy()), Image.fromarray(grey()).convert("RGB")]


def _saved(form: str, **options: object) -> bytes:
    file = BytesIO()
    _frames()[0].save(file, form, **options)
    return file.getvalue()


def _archive() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("../../victim/precious.txt", "mine")
    return file.getvalue()


def _write(data: bytes, path: Path) -> None:
    path.write_bytes(data)
