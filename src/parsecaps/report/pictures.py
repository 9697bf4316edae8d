"""Images, maps and traversals as picture files, and picture files as text that a page or JSON can hold."""

import base64
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from einops import rearrange
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

if TYPE_CHECKING:
    from parsecaps.explain.traversal import TraversalStrip

MAP_SIDE = 64  # pixels of a map that is stored, at most
SHOWN_SIDE = 32  # pixels of a map that is shown, at most: about as many as the primary grid has; a browser enlarges it
_LOW, _HIGH = np.array([0.0, 210.0, 255.0]), np.array([255.0, 240.0, 40.0])  # blue to yellow, told apart by all eyes
_STRENGTH = 0.8  # opacity of a map where it is highest
_LARGE = 448  # pixels of an overlay, at least
_GAP = 4  # pixels between the pictures of a contact sheet
_TEXT_SIZE, _TEXT_HEIGHT = 12, 18
_PAPER, _INK = 255, 20
_HTML_SIGNS = str.maketrans("<&>`", "./:,")
_STRIP_SIDE, _STRIP_GAP = 96, 4  # pixels of a picture in a strip, at most, and between two of them


def map_levels(found: np.ndarray, largest: int = MAP_SIDE) -> tuple[np.ndarray, float]:
    """A map (size, size) as bytes (side, side), at most `largest` pixels a side, and the value that 255 stands for."""
    scaled, highest = _scaled(found)
    levels, share = _scaled(_resized(scaled, largest))
    return (levels * 255).round().astype(np.uint8), highest * share


def overlay_picture(image: Tensor, found: np.ndarray | None) -> Image.Image:
    """A map (size, size) over its image (channels, size, size), at least 448 pixels large; None: the image alone."""
    below = picture_of(image).convert("RGB")
    side = below.width * max(1, -(-_LARGE // below.width))
    below = below.resize((side, side), Image.Resampling.BICUBIC)
    return below if found is None else _overlaid(below, found)


def overlay_jpeg(picture: bytes, heat: np.ndarray) -> bytes:
    """A map (size, size) over a JPEG file, in the colours that it has on the page of a case."""
    return picture_file(_overlaid(Image.open(io.BytesIO(picture)).convert("RGB"), heat), quality=82)


def _overlaid(below: Image.Image, found: np.ndarray) -> Image.Image:
    """A map in colours from blue to yellow, scaled to its own highest value, and clear where it is 0."""
    small = Image.fromarray(_scaled(_resized(_scaled(found)[0], SHOWN_SIDE))[0].astype(np.float32))
    value = np.clip(np.asarray(small.resize(below.size, Image.Resampling.BICUBIC)), 0, 1)[..., None]
    alpha = _STRENGTH * np.sqrt(value)  # weak evidence shows more than its share
    mixed = np.asarray(below, dtype=np.float64) * (1 - alpha) + (_LOW + (_HIGH - _LOW) * value) * alpha
    return Image.fromarray(mixed.round().astype(np.uint8))


def picture_jpeg(image: Tensor, largest: int = 320) -> bytes:
    """An image (channels, size, size) in [0, 1] as a JPEG file."""
    picture = picture_of(image)
    picture.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    return picture_file(picture, quality=85)


def traversal_picture(strip: "TraversalStrip") -> Image.Image:
    """The decoder's pictures beside each other, in columns of the same width."""
    drawn = [picture_of(each) for each in strip.pictures]
    side = min(_STRIP_SIDE, drawn[0].width)
    column = side + _STRIP_GAP
    picture = Image.new("RGB", (len(drawn) * column, side), "white")
    for i, each in enumerate(drawn):
        picture.paste(each.resize((side, side), Image.Resampling.BILINEAR), (i * column + _STRIP_GAP // 2, 0))
    return picture


def picture_of(image: Tensor) -> Image.Image:
    """An image (1 or 3, size, size) in [0, 1] for Pillow."""
    levels = (image.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)


def picture_file(picture: Image.Image, quality: int | None = None) -> bytes:
    """A picture of Pillow as a PNG file, or as a JPEG file of some quality."""
    file = io.BytesIO()
    kind, how = ("PNG", {"optimize": True}) if quality is None else ("JPEG", {"quality": quality})
    picture.save(file, kind, **how)
    return file.getvalue()


def base85_text(file: bytes) -> str:
    """Encode bytes in base 85 without characters that HTML treats specially; 6 % shorter than base 64.

    >>> base85_text(b"abcde")
    'VPa!sWd'
    """
    return base64.b85encode(file).decode().translate(_HTML_SIGNS)


def base64_text(file: bytes) -> str:
    """A file in base64.

    >>> base64_text(b"abc")
    'YWJj'
    """
    return base64.b64encode(file).decode()


def data_uri(file: bytes) -> str:
    r"""A PNG or JPEG file as an address that holds it, for a page that needs nothing but itself.

    >>> data_uri(b"\xff\xd8abc")
    'data:image/jpeg;base64,/9hhYmM='
    """
    kind = "jpeg" if file.startswith(b"\xff\xd8") else "png"
    return f"data:image/{kind};base64,{base64_text(file)}"


def _scaled(found: np.ndarray) -> tuple[np.ndarray, float]:
    """What is above 0, from 0 to 1, and its highest value; values below spoke against, and are not shown."""
    positive = np.clip(np.nan_to_num(np.asarray(found, dtype=np.float64)), 0, None)
    highest = float(positive.max())
    return positive / highest if highest > 0 else positive, highest


def _resized(found: np.ndarray, largest: int) -> np.ndarray:
    """At most this many pixels a side, each the mean of those it stands for."""
    picture = Image.fromarray(found.astype(np.float32))
    side = min(largest, picture.width)
    return np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR))


def contact_sheet(images: np.ndarray, captions: Sequence[str] | None = None, *, columns: int = 8) -> np.ndarray:
    """Lay pictures out row by row on white; a caption too long for its picture is cut.

    Shapes:
        - images: (N, C, H, W), grey (C = 1) or RGB (C = 3)
        - output: (3, height, width)

    >>> contact_sheet(np.zeros((5, 1, 32, 32), np.uint8), columns=3).shape
    (3, 76, 112)
    """
    if images.ndim != 4 or images.shape[1] not in (1, 3) or images.dtype != np.uint8 or not len(images):
        raise ValueError(f"images are {images.dtype} {images.shape}; give uint8 (N, 1 or 3, H, W) with N at least 1")
    if columns < 1:
        raise ValueError(f"{columns} columns hold no picture; give at least 1")
    if captions is not None and len(captions) != len(images):
        raise ValueError(f"{len(captions)} captions for {len(images)} images; give one for each")
    n, _, height, width = images.shape
    columns = min(columns, n)
    tiles = np.broadcast_to(images, (n, 3, height, width))
    if captions is not None:
        lines = np.stack([_text(line, width) for line in captions])[:, None].repeat(3, 1)
        tiles = np.concatenate([tiles, lines], axis=2)
    tiles = np.pad(tiles, ((0, -n % columns), (0, 0), (_GAP, 0), (_GAP, 0)), constant_values=_PAPER)
    sheet = rearrange(tiles, "(r c) k h w -> k (r h) (c w)", c=columns)
    return np.pad(sheet, ((0, 0), (0, _GAP), (0, _GAP)), constant_values=_PAPER)


def _text(line: str, width: int) -> np.ndarray:
    """(height, width) of one line of dark text on white."""
    strip = Image.new("L", (width, _TEXT_HEIGHT), _PAPER)
    ImageDraw.Draw(strip).text((1, 1), line, fill=_INK, font=ImageFont.load_default(_TEXT_SIZE))
    return np.asarray(strip)
