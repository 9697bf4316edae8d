"""Digits under affine changes on a larger canvas, by the recipe of affNIST; `data.sources.affnist_like` lists them."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

CANVAS = 40


def change(digits: Tensor, draws: Tensor) -> Tensor:
    """Put digits on the canvas under the affine changes that the draws, uniform in [0, 1), stand for.

    Shapes:
        - digits: (n, 28, 28) uint8
        - draws: (n, 6)
        - output: (n, 40, 40) uint8
    """
    if not len(digits):
        return torch.zeros(0, CANVAS, CANVAS, dtype=torch.uint8)
    matrix, start, centre = placement(digits, draws)
    size = digits.shape[-1]
    line = torch.arange(CANVAS, dtype=torch.float32) + 0.5
    place = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).reshape(1, -1, 2)  # (1, 1600, 2), x and y
    origin = (place - start[:, None]) @ torch.linalg.inv(matrix).mT + centre[:, None]
    grid = (origin / size * 2 - 1).reshape(-1, CANVAS, CANVAS, 2)
    sampled = F.grid_sample(digits[:, None].float(), grid, mode="bilinear", align_corners=False)
    return sampled[:, 0].round().clamp(0, 255).to(torch.uint8)


def placement(digits: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The affine change of each digit: `canvas = matrix @ (digit - centre) + start`, x before y, in pixels.

    `start` is where the middle of the ink comes to lie, such that all of the ink, spread by a pixel as bilinear
    sampling does, stays on the canvas. A digit of at most 20 x 20, as MNIST's are, always fits.

    Shapes:
        - digits: (n, 28, 28); draws: (n, 6)
        - matrix: (n, 2, 2); start and centre: (n, 2)
    """
    angle = (draws[:, 0] * 2 - 1) * math.radians(20)
    shear = (draws[:, 1] * 2 - 1) * 0.2
    scale = 0.8 + 0.4 * draws[:, 2:4]
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).reshape(-1, 2, 2)
    shearing = torch.eye(2).repeat(len(digits), 1, 1)
    shearing[:, 0, 1] = shear
    matrix = rotation @ shearing @ torch.diag_embed(scale)
    low, high = _ink(digits)
    centre = (low + high) / 2
    reach = (matrix.abs() @ ((high - low) / 2)[:, :, None])[:, :, 0]  # half the width and height on the canvas
    start = reach + draws[:, 4:6] * (CANVAS - 2 * reach)
    return matrix, start, centre


def _ink(digits: Tensor) -> tuple[Tensor, Tensor]:
    """The box of the ink (n, 2) each, half a pixel wider on every side; the whole image where there is none."""
    low, high = [], []
    for axis in (1, 2):  # along the columns for x, along the rows for y
        inked = (digits > 0).any(dim=axis)
        inked |= ~inked.any(dim=1, keepdim=True)
        low.append(inked.float().argmax(dim=1) - 0.5)
        high.append(inked.shape[1] - inked.flip(1).float().argmax(dim=1) + 0.5)
    return torch.stack(low, dim=-1), torch.stack(high, dim=-1)
