"""Maps of where a concept, or the reason for a class, was seen: the network's own routes, followed down to pixels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from torch import Tensor

from parsecaps.explain.attribution_path import AttributionPath, Target, neutral_image, target_values
from parsecaps.functional.squash import is_exporting
from parsecaps.nn.capsules import CapsuleGrid, InitialBlock
from parsecaps.nn.routes import RouteLayer, RouteTree
from parsecaps.nn.trunk import TrunkBlock

_POINTS = (0.25, 0.75)  # of the way from the neutral image, where gradients of the pixels are taken

Box = tuple[int, int, int, int]  # top, left, bottom, right in pixels; bottom and right are the first outside


@dataclass(frozen=True)
class PrimaryGrid:
    """The grid of primary capsules on an image: along both sides, capsule i is centred at `first + i * step` pixels.

    Convolutions look at both sides of every second (fourth, ...) pixel, so the first is centred on the first pixel.
    """

    first: float
    step: int
    width: int
    size: int

    @classmethod
    def of(cls, initial: InitialBlock | TrunkBlock, size: int) -> "PrimaryGrid":
        """The grid that an initial block gives to an image of `size` pixels.

        >>> block = InitialBlock(in_channels=1, channels=(4, 4, 4, 4), image_size=64, grid_width=16)
        >>> PrimaryGrid.of(block, 64)
        PrimaryGrid(first=0.5, step=4, width=16, size=64)
        """
        return cls(*initial.places, initial.width, size)

    def interpolation(self) -> Tensor:
        """(width, size): how much each pixel belongs to each capsule, along one side; linear between the centres."""
        pixels = torch.arange(self.size) + 0.5
        position = ((pixels - self.first) / self.step).clamp(0, self.width - 1)
        return (1 - (position - torch.arange(self.width).unsqueeze(1)).abs()).clamp_min(0)

    def edges(self, halvings: int) -> list[int]:
        """Where the places of a grid that was halved so often begin, and where the last ends.

        >>> PrimaryGrid(first=0.5, step=4, width=5, size=18).edges(0)
        [0, 2, 6, 10, 14, 18]
        >>> PrimaryGrid(first=0.5, step=4, width=5, size=18).edges(1)
        [0, 6, 14, 18]
        """
        between = [math.floor(self.first + self.step * (i - 0.5)) for i in range(1, self.width)]
        edges = [0, *between, self.size]
        for _ in range(halvings):
            edges = [*edges[:-1:2], self.size]
        return edges

    def bounding_box(self, capsules: Sequence[int], halvings: int) -> Box:
        """The smallest box of pixels around some capsules of a grid that was halved so often."""
        edges = self.edges(halvings)
        rows, columns = zip(*(divmod(capsule, len(edges) - 1) for capsule in capsules), strict=True)
        return edges[min(rows)], edges[min(columns)], edges[max(rows) + 1], edges[max(columns) + 1]


def bounding_box(boxes: Sequence[Box]) -> Box:
    """The smallest box around boxes."""
    tops, lefts, bottoms, rights = zip(*boxes, strict=True)
    return min(tops), min(lefts), max(bottoms), max(rights)


@torch.no_grad()
def route_maps(path: AttributionPath, targets: Sequence[Target]) -> Tensor:
    """Where each target was seen: what the primary capsules brought along the path, brought to pixels.

    Shapes:
        - output: (B, targets, size, size), not negative
    """
    trace = path.trace
    grid = PrimaryGrid.of(trace.initial, trace.image.shape[-1])
    path.find_gradients(targets)
    found = {target: path.leaf_attribution(target) for target in targets}
    pixels = _pixels_of(path, {target: each.direction for target, each in found.items()})
    relevance = torch.stack([found[target].relevance for target in targets], 1).clamp_min(0)
    contributions = torch.stack([pixels[target] for target in targets], 1).clamp_min(0)
    return smooth(focus(relevance, contributions, grid), grid.step)


def _pixels_of(path: AttributionPath, directions: dict[Target, Tensor]) -> dict[Target, Tensor]:
    """The contributions of the pixels (B, size, size), linear in the direction of each target."""
    sums = {target: weights for target in directions if (weights := path.concept_weights(target, directions))}
    single = [target for target in directions if target not in sums]
    pixels = dict(zip(single, pixel_contributions(path.trace, [directions[t] for t in single]), strict=True))
    for target, weights in sums.items():
        pixels[target] = torch.stack([weight * pixels[concept] for concept, weight in weights.items()]).sum(0)
    return pixels


def pixel_contributions(trace: RouteTree, directions: Sequence[Tensor]) -> list[Tensor]:
    """What each pixel, by differing from the neutral picture, adds to the primary capsules along each direction.

    Gradient times difference, the mean of two points. The initial block begins linearly: their mean passes it at once.

    Shapes:
        - directions: (B, n_1, d_1) each
        - output: (B, size, size) each, signed
    """
    start = neutral_image(trace.image)
    difference = trace.image - start
    initial = trace.initial
    with torch.enable_grad():
        image = trace.image.detach().clone().requires_grad_()
        features = initial.begin(image)
        points = torch.cat([start + part * difference for part in _POINTS])
        middle = initial.begin(points).detach().requires_grad_()
        leaves = trace.primary_caps(initial.finish(middle.clone()))  # ReLU works in place

    def at_pixels(direction: Tensor) -> Tensor:
        (gradient,) = torch.autograd.grad(leaves, middle, direction.repeat(len(_POINTS), 1, 1), retain_graph=True)
        mean = rearrange(gradient, "(p b) ... -> p b ...", p=len(_POINTS)).mean(0)
        (gradient,) = torch.autograd.grad(features, image, mean, retain_graph=True)
        return (gradient * difference).sum(1)

    if is_exporting():  # one after the other would be so many times the graph
        return list(torch.vmap(at_pixels)(torch.stack(list(directions))))
    return [at_pixels(direction) for direction in directions]


def magnify(relevance: Tensor, grid: PrimaryGrid) -> Tensor:
    """Interpolate between the capsules: (B, K, n) -> (B, K, size, size)."""
    across = grid.interpolation().to(relevance)
    return across.T @ rearrange(relevance, "b k (y x) -> b k y x", x=grid.width) @ across


def focus(relevance: Tensor, contributions: Tensor, grid: PrimaryGrid) -> Tensor:
    """Evidence at pixels: where the capsule is evidence and the pixel itself contributed to it.

    The product of the two, scaled to sum to the relevance; in proportion to the relevance alone where no pixel
    contributed. It finds the phantom's concepts better than either factor.

    Shapes:
        - relevance: (B, K, n), not negative
        - contributions: (B, K, size, size), not negative
        - output: (B, K, size, size), not negative
    """
    coarse = magnify(relevance, grid)
    fine = coarse * contributions
    found = torch.where(fine.sum((-2, -1), keepdim=True) > 0, fine, coarse)
    total = found.sum((-2, -1), keepdim=True)
    return found * (relevance.sum(-1)[..., None, None] / torch.where(total > 0, total, 1))


def smooth(maps: Tensor, step: int) -> Tensor:
    """Share each pixel's value out over the widest odd window below `step` pixels, and inside the map."""
    reach = (step - 2) // 2
    if reach < 1:
        return maps
    pixels = torch.arange(maps.shape[-1], device=maps.device)
    window = ((pixels - pixels.unsqueeze(1)).abs() <= reach).to(maps)
    window = window / window.sum(0)  # each column shares out one pixel
    return window @ maps @ window.T


def layer_contributions(layer: RouteLayer, targets: Sequence[Target]) -> list[Tensor]:
    """What each child brought to each target, along one layer of routes: (B, heads, K, n) each, signed."""
    with torch.enable_grad():
        values = target_values(layer.output, targets).unbind(1)
    return [layer.contributions(each) for each in values]


def layer_maps(layer: RouteLayer, targets: Sequence[Target], size: int) -> Tensor:
    """Where the children lie that brought most to each target: their sum at each place, spread over the pixels there.

    Shapes:
        - output: (B, targets, size, size), not negative
    """
    brought = torch.stack([each.sum((1, 2)) for each in layer_contributions(layer, targets)], 1)  # (B, T, n)
    maps = brought.new_zeros(*brought.shape[:2], size, size)
    for grid, part in zip(layer.grids, torch.split(brought, [grid.capsules for grid in layer.grids], 2), strict=True):
        at_places = rearrange(part, "b k (y x t) -> b k y x t", x=grid.width, t=grid.types).sum(-1).clamp_min(0)
        across = _spread(grid, size).to(maps)
        maps += across.T @ at_places @ across
    return maps


def _spread(grid: CapsuleGrid, size: int) -> Tensor:
    """(width, size): how much of a place each pixel gets, along one side; less and less up to where it sees nothing."""
    centre = grid.first + grid.step * torch.arange(grid.width).unsqueeze(1)
    away = (torch.arange(size) + 0.5 - centre).abs()
    near = (1 - away / max(grid.step, grid.reach or 0.0)).clamp_min(0)
    return near / near.sum(1, keepdim=True).clamp_min(1e-6)
