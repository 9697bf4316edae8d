"""The preparation between a file's pixels and a model, saved with the model; it gives the 256 levels of a byte."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from parsecaps.config import LARGEST_IMAGE
from parsecaps.data.raw_image import RawImage
from parsecaps.files.untrusted import shown

Square = Literal["pad", "crop", "stretch"]
Scaling = Literal["range", "percentile"]
_BRIGHTEST = 99.5
_LUMA = (0.299, 0.587, 0.114)  # ITU-R BT.601
_Box = tuple[slice, slice]  # rows and columns of an image
_AT_ONCE = 2**24  # pixels of a large image that are worked on at a time: copies of all of it would not fit in memory


@dataclass(frozen=True)
class Preparation:
    """How an image becomes a square of `size` pixels with values in [0, 1], by `config.PreparationSection`.

    Without a range in the file, `scaling="range"` is by content. Grey becomes colour by repetition, colour grey by
    ITU-R 601 luma. Resampling is bilinear with antialiasing.
    """

    size: int
    channels: int = 1
    square: Square = "pad"
    scaling: Scaling = "range"
    centre: float = 1.0

    def __post_init__(self) -> None:
        if type(self.size) is not int or not 1 <= self.size <= LARGEST_IMAGE:
            raise ValueError(f"size is {shown(self.size)}; give a whole number of pixels from 1 to {LARGEST_IMAGE}")
        if type(self.channels) is not int or self.channels not in (1, 3):
            raise ValueError(f"channels is {shown(self.channels)}; choose 1 (grey) or 3 (colour)")
        for name, choices in (("square", get_args(Square)), ("scaling", get_args(Scaling))):
            if getattr(self, name) not in choices:
                raise ValueError(f"{name} is {shown(getattr(self, name))}; choose one of {', '.join(choices)}")
        if type(self.centre) not in (int, float) or not 0 < self.centre <= 1:
            raise ValueError(f"centre is {shown(self.centre)}; give the used part of each side, above 0 and up to 1")

    def to_dict(self) -> dict[str, int | float | str]:
        """Plain numbers and words, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Preparation":
        """The preparation that `to_dict` wrote; only `centre` may be missing.

        >>> Preparation.from_dict({"size": 112, "chanels": 1, "square": "pad", "scaling": "range"})
        Traceback (most recent call last):
        ValueError: a preparation has no 'chanels'; did you mean 'channels'?
        """
        names = [field.name for field in fields(cls)]
        if unknown := [key for key in values if key not in names]:
            near = get_close_matches(str(unknown[0]), names, 1, 0)
            raise ValueError(f"a preparation has no {unknown[0]!r}; did you mean {near[0]!r}?")
        if lacking := [name for name in names if name not in {*values, "centre"}]:  # older models have no centre
            raise ValueError(f"the preparation lacks {lacking[0]!r}; it has {', '.join(values) or 'nothing'}, add it")
        return cls(**values)

    def prepare(self, raw: RawImage) -> Tensor:
        """The image (channels, size, size), float32 in [0, 1] on the levels of a byte."""
        return dequantise(self.levels(raw))

    def levels(self, raw: RawImage) -> Tensor:
        """The prepared image (channels, size, size) as uint8, for a cache: `dequantise` makes `prepare` of it."""
        source, target = self._boxes(raw.pixels.shape[0], raw.pixels.shape[1])
        planes = np.atleast_3d(raw.pixels)[source]  # (h, w, 1 or 3)
        if planes.dtype == np.uint8 and raw.full_range == (0, 255) and self.scaling == "range":
            # resized as bytes: thirty times as fast on a large photo, and within a level of the same in floating point
            part = _resized(torch.from_numpy(planes).permute(2, 0, 1), target)
        else:
            if self.scaling == "range" and raw.full_range is not None:
                low, high = raw.full_range
            else:
                low, high = float(raw.pixels.min()), _percentile(raw.pixels, _BRIGHTEST)
                high = high if raw.pixels.dtype.kind == "f" else max(high, low + 1)  # one grey level
            scale = partial(_scaled, low=low, span=high - low)
            each = (planes[None, :, :, c] for c in range(planes.shape[2]))
            part = quantise(torch.cat([_resized(plane, target, scale) for plane in each]))
        if len(part) > self.channels:
            part = quantise(torch.einsum("chw,c->hw", dequantise(part), torch.tensor(_LUMA)))[None]
        image = part.new_zeros(self.channels, self.size, self.size)
        image[:, *target] = part
        return image

    def prepare_mask(self, mask: NDArray[np.bool_]) -> Tensor:
        """How much of each pixel of the prepared image the mask (H, W) covers: (size, size), float32 in [0, 1]."""
        source, target = self._boxes(*mask.shape)
        part = torch.from_numpy(mask[source].astype(np.float32))
        covered = torch.zeros(self.size, self.size)
        covered[target] = _resized(part[None], target)[0].clamp(0, 1)
        return covered

    def to_original(self, values: Tensor, shape: tuple[int, int]) -> Tensor:
        """Carry a map (size, size) back to the pixels (H, W) of the image it is about; 0 where a crop left off."""
        if values.shape != (self.size, self.size):
            raise ValueError(f"the map has shape {tuple(values.shape)}; give ({self.size}, {self.size})")
        source, target = self._boxes(*shape)
        original = values.new_zeros(shape)
        original[source] = _resized(values[None, *target], source)[0]
        return original

    def _boxes(self, height: int, width: int) -> tuple[_Box, _Box]:
        """The part of the image that is used, and where it lies in the square."""
        rows, columns = (max(1, round(side * self.centre)) for side in (height, width))
        if self.square == "crop":
            rows = columns = min(rows, columns)
        used = _middle(height, width, rows, columns)
        if self.square != "pad":
            return used, (slice(0, self.size), slice(0, self.size))
        scale = self.size / max(rows, columns)
        return used, _middle(self.size, self.size, max(1, round(rows * scale)), max(1, round(columns * scale)))


def _middle(height: int, width: int, rows: int, columns: int) -> _Box:
    top, left = (height - rows) // 2, (width - columns) // 2
    return slice(top, top + rows), slice(left, left + columns)


def quantise(image: Tensor) -> Tensor:
    """Values in [0, 1] to the nearest of 256 levels, as uint8; exact for what `prepare` gives."""
    return (image.clamp(0, 1) * 255).round().to(torch.uint8)


def dequantise(levels: Tensor) -> Tensor:
    """Levels of a byte back to float32 in [0, 1]."""
    return torch.div(levels, 255)


def _scaled(planes: NDArray[Any], low: float, span: float) -> Tensor:
    """Planes with `low` at 0 and `low + span` at 1; without a span all that is above `low` is white."""
    values = torch.from_numpy(planes.astype(np.float32))
    if span <= 0:
        return (values > low).float()
    return values.sub_(low).div_(span).clamp_(0, 1)


def _percentile(pixels: NDArray[Any], percent: float) -> float:
    """`np.percentile`, without a copy of a large image."""
    values = pixels.reshape(-1)
    if values.size <= _AT_ONCE:
        return float(np.percentile(values, percent))
    place = percent / 100 * (values.size - 1)
    kept, brighter = values.size - int(place), values[:0]
    for start in range(0, values.size, _AT_ONCE):
        brighter = np.concatenate([brighter, values[start : start + _AT_ONCE]])
        if brighter.size > kept:
            brighter = np.partition(brighter, brighter.size - kept)[-kept:]
    low, high = np.partition(brighter, (0, 1))[:2].astype(float)
    return float(low + (high - low) * (place - int(place)))


def _resized(planes: Any, box: _Box, scale: Callable[[Any], Tensor] = lambda planes: planes) -> Tensor:
    """Planes (c, h, w), of torch or of numpy with a `scale` that makes a tensor of them, at the size of the box.

    A large image is narrowed some rows at a time, then shortened, as torch does: the result is the same. One that
    becomes wider is shortened first, to save memory.
    """
    channels, height, width = planes.shape
    new_height, new_width = (side.stop - side.start for side in box)
    if channels * height * width <= _AT_ONCE:
        return _interpolated(scale(planes), new_height, new_width)
    if width < new_width and height > new_height:
        return _resized(planes.swapaxes(1, 2), box[::-1], scale).swapaxes(1, 2)
    rows = max(1, _AT_ONCE // (channels * width))
    parts = (planes[:, start : start + rows] for start in range(0, height, rows))
    narrow = torch.cat([_interpolated(scale(part), part.shape[1], new_width) for part in parts], 1)
    return _interpolated(narrow, new_height, new_width)


def _interpolated(planes: Tensor, height: int, width: int) -> Tensor:
    return F.interpolate(planes[None], (height, width), mode="bilinear", antialias=True, align_corners=False)[0]
