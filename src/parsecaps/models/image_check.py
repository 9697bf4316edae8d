"""One-line errors for arguments and images that a model cannot take."""

from numbers import Integral

import torch
from torch import Tensor

SMALLEST_IMAGE = 28


def check_sizes(*, num_classes: int, num_concepts: int, in_channels: int, image_size: int) -> None:
    """Refuse numbers no model can be built from; each error names the value and what would do."""
    given = {"num_classes": num_classes, "num_concepts": num_concepts, "in_channels": in_channels}
    for name, value in {**given, "image_size": image_size}.items():
        if not isinstance(value, Integral) or isinstance(value, bool):
            raise ValueError(f"{name} is {value!r}; give a whole number")
    if num_classes < 1:
        raise ValueError(f"num_classes is {num_classes}; give at least 1")
    if num_concepts < 0:
        raise ValueError(f"num_concepts is {num_concepts}; give 0 (no concepts) or more")
    if in_channels < 1:
        raise ValueError(f"in_channels is {in_channels}; give 1 (grey), 3 (colour) or another positive number")
    if image_size < SMALLEST_IMAGE:
        raise ValueError(f"image_size is {image_size}; give at least {SMALLEST_IMAGE}, or enlarge the images")


def check_image(image: Tensor, *, in_channels: int, image_size: int) -> None:
    """Refuse a batch that is not `(B, in_channels, image_size, image_size)`, float and finite."""
    expected = f"(B, {in_channels}, {image_size}, {image_size})"
    if image.dim() != 4:
        raise ValueError(f"image has shape {tuple(image.shape)}; give {expected}, one batch axis first")
    if image.shape[1] != in_channels:
        fix = f"give {expected}, or build the model with in_channels={image.shape[1]}"
        raise ValueError(f"image has {image.shape[1]} channels; {fix}")
    if image.shape[2:] != (image_size, image_size):
        got = f"{image.shape[2]} x {image.shape[3]}"
        raise ValueError(f"image is {got}; resize it to {image_size} x {image_size}, or set image_size")
    if not image.is_floating_point():
        raise ValueError(f"image has dtype {image.dtype}; convert it with image.float() and scale it")
    if not torch.compiler.is_compiling() and not bool(image.sum().isfinite()):
        bad = int((~image.isfinite()).sum())
        if bad:
            raise ValueError(f"image has {bad} pixels that are NaN or infinite; repair or drop these images")
