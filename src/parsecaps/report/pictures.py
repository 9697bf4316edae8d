"""Maps as pictures: in few bytes for pages and JSON, or in colour over the image."""

import base64
import io
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

if TYPE_CHECKING:
    from PIL.Image import Image

MAP_SIDE = 64  # pixels of a map that is stored
SHOWN_SIDE = 32  # pixels of a map that is shown, about as many as places on the primary grid; a browser enlarges it
_LEVELS = 32
_LOW, _HIGH = (
    np.array([0.0, 210.0, 255.0]),
    np.array([255.0, 240.0, 40.0]),
)  # blue to yellow, for all eyes to tell apart
_LARGE = 448  # pixels of an overlay, at least


def map_png(found: np.ndarray) -> bytes:
    """A map (size, size) as a PNG of at most 32 pixels: clear where it is 0, from blue to yellow as it grows.

    It is meant to be enlarged over the image. The colours are scaled to its own highest value.
    """
    from PIL import Image

    level = (_small(found, SHOWN_SIDE) * (_LEVELS - 1)).round().astype(np.uint8)
    colours, opacity = _colours()
    picture = Image.fromarray(level, mode="P")
    picture.putpalette(colours.tobytes())
    return png_file(picture, transparency=opacity.tobytes())


def grey_png(found: np.ndarray) -> bytes:
    """A map (size, size) as a grey PNG of at most 64 pixels, in which 255 is its highest value."""
    from PIL import Image

    return png_file(Image.fromarray((_small(found, MAP_SIDE) * 255).round().astype(np.uint8)))


def overlay_png(image: Tensor, found: np.ndarray | None, strength: float = 0.8) -> bytes:
    """A map (size, size) in colour over its image (channels, size, size), as a PNG; None: the image alone."""
    from PIL import Image

    below = picture_of(image).convert("RGB")
    side = below.width * max(1, -(-_LARGE // below.width))
    below = below.resize((side, side), Image.Resampling.BICUBIC)
    if found is None:
        return png_file(below)
    small = Image.fromarray(_small(found, SHOWN_SIDE).astype(np.float32))
    share = small.resize((side, side), Image.Resampling.BICUBIC)
    value = np.clip(np.asarray(share), 0, 1)[..., None]
    alpha = strength * np.sqrt(value)
    mixed = np.asarray(below, dtype=np.float64) * (1 - alpha) + (_LOW + (_HIGH - _LOW) * value) * alpha
    return png_file(Image.fromarray(mixed.round().astype(np.uint8)))


def picture_jpeg(image: Tensor, largest: int = 320) -> bytes:
    """An image (channels, size, size) in [0, 1] as a JPEG file."""
    from PIL import Image

    picture = picture_of(image)
    picture.thumbnail((largest, largest), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=85)
    return file.getvalue()


def png_as_jpeg(png: bytes) -> bytes:
    """A PNG file as a smaller JPEG file, for a page of many."""
    from PIL import Image

    file = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").save(file, "JPEG", quality=80)
    return file.getvalue()


def picture_of(image: Tensor) -> "Image":
    """An image (1 or 3, size, size) in [0, 1] for Pillow."""
    from PIL import Image

    levels = (image.detach().clamp(0, 1) * 255).round().byte().permute(1, 2, 0).cpu().numpy()
    return Image.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)


def png_uri(file: bytes) -> str:
    """A PNG file as an address that holds it.

    >>> png_uri(b"abc")
    'data:image/png;base64,YWJj'
    """
    return "data:image/png;base64," + base64.b64encode(file).decode()


def _scaled(found: np.ndarray) -> np.ndarray:
    """To [0, 1] by the highest value; what is below 0 spoke against, and is not shown."""
    positive = np.clip(np.nan_to_num(np.asarray(found, dtype=np.float64)), 0, None)
    highest = positive.max()
    return np.asarray(positive / highest if highest > 0 else positive)


def _small(found: np.ndarray, largest: int) -> np.ndarray:
    """At most so many pixels, each the mean of those it stands for, scaled to [0, 1]."""
    from PIL import Image

    picture = Image.fromarray(_scaled(found).astype(np.float32))
    side = min(largest, picture.width)
    return _scaled(np.asarray(picture.resize((side, side), Image.Resampling.BILINEAR)))


def _colours() -> tuple[np.ndarray, np.ndarray]:
    """The colour (32, 3) and the opacity (32,) of each level; weak evidence shows more than its share."""
    value = np.linspace(0, 1, _LEVELS)[:, None]
    colours = (_LOW + (_HIGH - _LOW) * value).round().astype(np.uint8)
    return colours, (255 * np.sqrt(value[:, 0])).round().astype(np.uint8)


def png_file(picture: "Image", **settings: bytes) -> bytes:
    """A picture of Pillow as a PNG file."""
    file = io.BytesIO()
    picture.save(file, "PNG", optimize=True, **settings)
    return file.getvalue()
