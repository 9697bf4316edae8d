"""Image files of many kinds, small and drawn by chance, to compare two readers with."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
ORIENTATION = 0x0112


def write_pictures(folder: Path) -> list[Path]:
    """PNG (all colour types and depths, transparent, interlaced), JPEG and BMP; turned ones; from 1 pixel up."""
    chance = np.random.default_rng(0)
    files: dict[str, bytes] = {}

    def picture(height: int, width: int, channels: int = 1) -> Image.Image:
        coarse = chance.integers(0, 256, (max(2, height // 9), max(2, width // 9), channels)).astype(np.uint8)
        planes = [Image.fromarray(coarse[:, :, c]).resize((width, height), 3) for c in range(channels)]
        levels = np.stack(planes, 2) + chance.normal(0, 12, (height, width, channels))
        return Image.fromarray(levels.clip(0, 255).astype(np.uint8).squeeze(2 if channels == 1 else ()))

    def add(name: str, image: Image.Image, **settings: Any) -> None:
        file = io.BytesIO()
        image.save(file, {"png": "PNG", "jpg": "JPEG", "bmp": "BMP"}[name[-3:]], **settings)
        files[name] = file.getvalue()

    add("grey.png", picture(97, 131))
    add("colour.png", picture(200, 143, 3))
    add("opacity.png", picture(75, 90, 4))
    add("grey-opacity.png", picture(75, 90, 2))
    add("bits.png", picture(33, 41).point(lambda level: 255 * (level > 120), "1"))
    add("tiny.png", picture(5, 3, 3))
    add("pixel.png", picture(1, 1, 3))
    add("wide.png", picture(9, 400))
    add("large.png", picture(500, 701, 3))
    add("black.png", Image.new("L", (30, 20)))
    add("palette.png", picture(120, 99, 3).quantize(37))
    add("palette-clear.png", picture(50, 70, 3).quantize(16), transparency=3)
    add("palette-opacity.png", picture(50, 70, 3).quantize(16), transparency=chance.bytes(16))
    deep = np.asarray(picture(97, 80)).astype(np.uint16) * 200 + chance.integers(0, 200, (97, 80), np.uint16)
    add("grey-16.png", Image.fromarray(deep))
    exif = Image.Exif()
    for orientation in range(1, 9):
        exif[ORIENTATION] = orientation
        add(f"turned-{orientation}.png", picture(30, 47, 3), exif=exif.tobytes())
        add(f"turned-{orientation}.jpg", picture(61, 47, 3), exif=exif.tobytes(), quality=92)
    for subsampling in range(3):
        add(f"sampled-{subsampling}.jpg", picture(301, 407, 3), subsampling=subsampling, quality=85)
    add("progressive.jpg", picture(300, 400, 3), progressive=True)
    add("grey.jpg", picture(130, 111))
    add("colour.bmp", picture(61, 47, 3))
    add("grey.bmp", picture(61, 47))
    add("palette.bmp", picture(60, 49, 3).quantize(37))
    for depth, colour, bits, more in (
        (2, 0, 2, b""),
        (4, 0, 4, b""),
        (2, 0, 2, chunk(b"tRNS", b"\0\2")),
        (1, 0, 1, chunk(b"tRNS", b"\0\1")),
        (8, 0, 8, chunk(b"tRNS", b"\0\x21")),
        (8, 2, 24, chunk(b"tRNS", b"\0\1\0\2\0\3")),
        (16, 2, 48, b""),
        (16, 4, 32, b""),
        (16, 6, 64, b""),
        (2, 3, 2, chunk(b"PLTE", chance.bytes(12))),
        (8, 3, 8, chunk(b"PLTE", chance.bytes(30))),  # with pixels beyond the palette
    ):
        for interlaced in (0, 1):
            lines = _lines(chance, 37, 29, bits, ADAM7 if interlaced else ((0, 0, 1, 1),))
            header = chunk(b"IHDR", struct.pack(">IIBBBBB", 29, 37, depth, colour, 0, 0, interlaced))
            name = f"raw-{depth}-{colour}-{len(more)}-{interlaced}.png"
            packed = chunk(b"IDAT", zlib.compress(lines))
            files[name] = b"\x89PNG\r\n\x1a\n" + header + more + packed + chunk(b"IEND", b"")
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def chunk(kind: bytes, data: bytes) -> bytes:
    """A part of a PNG file, with its length and checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _lines(chance: np.random.Generator, height: int, width: int, bits: int, passes: Any) -> bytes:
    """Lines of chance, each with a filter of chance."""
    lines = []
    for left, top, across, down in passes:
        columns, rows = -(-(width - left) // across), -(-(height - top) // down)
        for _ in range(rows if columns > 0 else 0):
            lines.append(bytes([chance.integers(5)]) + chance.bytes(-(-columns * bits // 8)))
    return b"".join(lines)
