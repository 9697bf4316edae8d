"""Maps of networks whose routes are one layer, from capsules on a grid to the classes: what each child brought."""

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.explain.gradient_maps import target_gradients, target_values
from parsecaps.explain.trace import Target
from parsecaps.nn.capsules import CapsuleGrid
from parsecaps.nn.recorder import record_ways


def class_route_relevance(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> list[Tensor]:
    """What each child of the class capsules (of the attributes, where these decide) brought to each target.

    The inner product of each message with the gradient of the score at the sum of the messages. Where the score is the
    length of a squashed sum, that is the share of each child in the length before the squash, times one number.

    Shapes:
        - image: (B, channels, size, size)
        - output: (B, heads, K, n) for each target, signed
    """
    with torch.enable_grad(), record_ways(model) as ways:
        values = target_values(model, image.detach().requires_grad_(), targets)
        way = ways[-1]
        found = target_gradients(values, way.total)
    with torch.no_grad():
        return [way.messages.dense(way.messages.along(direction)) for direction in found]


def class_route_maps(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
    """Where the children lie that brought most to each class: their sum at each place, spread over the pixels there.

    Shapes:
        - image: (B, channels, size, size)
        - output: (B, targets, size, size), not negative
    """
    grids: tuple[CapsuleGrid, ...] = model.class_children  # type: ignore[assignment]
    brought = torch.stack([each.sum((1, 2)) for each in class_route_relevance(model, image, targets)], 1)  # (B, T, n)
    children = sum(grid.capsules for grid in grids)
    if brought.shape[2] != children:
        there = f"{children} children are said to be routed to its classes, but {brought.shape[2]} are"
        raise ValueError(f"{there}; mend class_children of {type(model).__name__}")
    maps = torch.zeros(*brought.shape[:2], *image.shape[2:]).to(brought)
    start = 0
    for grid in grids:
        part = brought.narrow(2, start, grid.capsules)
        start += grid.capsules
        at_places = rearrange(part, "b k (y x t) -> b k y x t", x=grid.width, t=grid.types).sum(-1).clamp_min(0)
        across = _spread(grid, image.shape[-1]).to(maps)
        maps += across.T @ at_places @ across
    return maps


def _spread(grid: CapsuleGrid, size: int) -> Tensor:
    """(width, size): how much of a place each pixel gets, along one side; less and less up to where it sees nothing."""
    centre = grid.first + grid.step * torch.arange(grid.width).unsqueeze(1)
    away = (torch.arange(size) + 0.5 - centre).abs()
    near = (1 - away / max(grid.step, grid.reach or 0.0)).clamp_min(0)
    return near / near.sum(1, keepdim=True).clamp_min(1e-6)
