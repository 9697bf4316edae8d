"""Where capsules lie in the image: the pixels that belong to each place of a grid."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parsecaps.nn.initial import InitialBlock

Box = tuple[int, int, int, int]  # top, left, bottom, right in pixels; bottom and right are the first outside


@dataclass(frozen=True)
class Places:
    """The primary grid on an image of `size` pixels: place i is centred at `first + i * step`, along both sides.

    Convolutions look at pixels on both sides of every second (fourth, ...) pixel, so the first place is centred on the
    first pixel and not in the middle of its step.
    """

    first: float
    step: int
    width: int
    size: int

    @classmethod
    def of(cls, initial: InitialBlock, size: int) -> "Places":
        """The places that an initial block gives to an image of `size` pixels.

        >>> block = InitialBlock(in_channels=1, channels=(4, 4, 4, 4), image_size=64, grid_width=16)
        >>> Places.of(block, 64)
        Places(first=0.5, step=4, width=16, size=64)
        """
        first, step = 0.5, 1
        for layer in initial.layers:
            if isinstance(layer, nn.Conv2d | nn.AvgPool2d):
                kernel, stride, padding = (_one(n) for n in (layer.kernel_size, layer.stride, layer.padding))
                first += ((kernel - 1) / 2 - padding) * step
                step *= stride
        return cls(first, step, initial.width, size)

    def interpolation(self) -> Tensor:
        """(width, size): how much each pixel belongs to each place, along one side; linear between the centres."""
        pixels = torch.arange(self.size) + 0.5
        position = ((pixels - self.first) / self.step).clamp(0, self.width - 1)
        return (1 - (position - torch.arange(self.width).unsqueeze(1)).abs()).clamp_min(0)

    def edges(self, halvings: int) -> list[int]:
        """Where the places of a grid that was halved so often begin, and where the last ends.

        >>> Places(first=0.5, step=4, width=5, size=18).edges(0)
        [0, 2, 6, 10, 14, 18]
        >>> Places(first=0.5, step=4, width=5, size=18).edges(1)
        [0, 6, 14, 18]
        """
        between = [math.floor(self.first + self.step * (i - 0.5)) for i in range(1, self.width)]
        edges = [0, *between, self.size]
        for _ in range(halvings):
            edges = [*edges[:-1:2], self.size]
        return edges

    def box(self, capsule: int, halvings: int) -> Box:
        """The pixels of one capsule of a grid that was halved so often."""
        edges = self.edges(halvings)
        row, column = divmod(capsule, len(edges) - 1)
        return edges[row], edges[column], edges[row + 1], edges[column + 1]


def hull(boxes: list[Box]) -> Box:
    """The smallest box around boxes."""
    tops, lefts, bottoms, rights = zip(*boxes, strict=True)
    return min(tops), min(lefts), max(bottoms), max(rights)


def _one(number: int | tuple[int, ...] | str) -> int:
    """The size along one side, where a layer may give it for both."""
    return int(number[0] if isinstance(number, tuple) else number)
