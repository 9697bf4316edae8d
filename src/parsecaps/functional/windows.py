"""Windows on a grid of capsules, gathered so that one batched matrix product serves all parents."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F


def gather_windows(u: Tensor, width: int, side: int, stride: int, padding: tuple[int, int]) -> Tensor:
    """Give each parent the capsules of its `side x side` window, row by row; outside the grid they are zero.

    The windows start `padding[0]` before the grid and end `padding[1]` behind it. The channels of a row of a window lie
    together in memory, so this is a copy of long runs, and its gradient a sum of `side * side` shifted grids.

    Shapes:
        - u: (B, width * width, d)
        - output: (B, parents, side * side, d)

    >>> gather_windows(torch.arange(4.0).view(1, 4, 1), width=2, side=2, stride=2, padding=(0, 0))[0, 0, :, 0]
    tensor([0., 1., 2., 3.])
    """
    windows: Tensor = _GatherWindows.apply(u, width, side, stride, padding)  # type: ignore[no-untyped-call]
    return windows


class _GatherWindows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, width: int, side: int, stride: int, padding: tuple[int, int]) -> Tensor:
        ctx.geometry = (width, side, stride, padding)
        grid = F.pad(u.view(u.shape[0], width, width, u.shape[2]), (0, 0, *padding, *padding))
        windows = grid.unfold(1, side, stride).unfold(2, side, stride)  # (B, y, x, d, side, side)
        parents = windows.shape[1] * windows.shape[2]
        return windows.permute(0, 1, 2, 4, 5, 3).reshape(u.shape[0], parents, side * side, u.shape[2])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        width, side, stride, (first, last) = ctx.geometry
        batch, parents, _, dim = grad.shape
        parent_width = round(parents**0.5)
        padded = width + first + last
        span = stride * (parent_width - 1) + 1
        grad = grad.view(batch, parent_width, parent_width, side, side, dim)
        grid = grad.new_zeros(batch, padded, padded, dim)
        for y in range(side):
            for x in range(side):
                grid[:, y : y + span : stride, x : x + span : stride] += grad[:, :, :, y, x]
        inner = grid[:, first : first + width, first : first + width]
        return inner.reshape(batch, width * width, dim), None, None, None, None
