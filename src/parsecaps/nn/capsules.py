"""Parts that capsule networks share, whatever their routing: primary capsules of a convolution, and votes."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm, check_form
from parsecaps.nn.heads import Axes


@dataclass(frozen=True)
class CapsuleGrid:
    """Where capsules lie in the image: `types` of them at each place of a square grid, centred at `first + i * step`.

    They come position by position, row by row, and at a position type by type. `reach` is how far a capsule sees to
    each side of its centre, in pixels; as far as the next one, where it is not said.
    """

    width: int
    types: int
    first: float
    step: int
    reach: float | None = None

    @classmethod
    def behind(cls, layers: Iterable[nn.Module], *, width: int, types: int) -> "CapsuleGrid":
        """The grid that some layers, of which convolutions and poolings count, make of an image.

        >>> CapsuleGrid.behind([nn.Conv2d(1, 8, 9), nn.Conv2d(8, 8, 9, stride=2)], width=6, types=1)
        CapsuleGrid(width=6, types=1, first=8.5, step=2, reach=8.5)
        """
        layers = list(layers)
        return cls(width, types, *grid_places(layers), reach=_reach(layers))

    @property
    def capsules(self) -> int:
        """How many there are."""
        return self.width**2 * self.types


def grid_places(layers: Iterable[nn.Module]) -> tuple[float, int]:
    """Where the first place of a grid is centred in the image, and how far the places are apart, in pixels."""
    first, step = 0.5, 1
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.AvgPool2d):
            kernel, stride, padding = (_one(n) for n in (layer.kernel_size, layer.stride, layer.padding))
            first += ((kernel - 1) / 2 - padding) * step
            step *= stride
    return first, step


def _reach(layers: Iterable[nn.Module]) -> float:
    """Half the width of the square of pixels that a place behind some layers sees."""
    width, step = 1, 1
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.AvgPool2d):
            width += (_one(layer.kernel_size) - 1) * step
            step *= _one(layer.stride)
    return width / 2


def _one(number: int | tuple[int, ...] | str) -> int:
    """The size along one side, where a layer may give it for both."""
    return int(number[0] if isinstance(number, tuple) else number)


class CapsuleLayer(nn.Module):
    """A module that gives capsules (B, n, d): what looks at capsules finds the layers of any model by this class."""


class ConvPrimaryCaps(CapsuleLayer):
    """Primary capsules of a convolution (Sabour, Frosst and Hinton 2017): `types` at each position, each squashed.

    A capsule is `dim` neighbouring channels at one position. They come position by position, row by row, and at a
    position type by type: capsule `(y * width + x) * types + type`. The authors' code divides by the number of types
    before the squash and starts with weights that many times larger; here the start is that of any convolution, which
    is about the same. `width` is that of the grid.

    Shapes:
        - input: (B, in_channels, size, size)
        - output: (B, width * width * types, dim)
    """

    def __init__(
        self,
        *,
        in_channels: int,
        size: int,
        types: int,
        dim: int,
        kernel: int = 9,
        stride: int = 2,
        squash_form: SquashForm = "quadratic",
    ) -> None:
        super().__init__()
        if size < kernel:
            raise ValueError(f"a map of {size} x {size} is smaller than the kernel of {kernel}; give larger images")
        self.types, self.dim = types, dim
        self.width = (size - kernel) // stride + 1
        self.squash_form = check_form(squash_form)
        self.convolution = nn.Conv2d(in_channels, types * dim, kernel, stride)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # capsules are then in one piece

    @property
    def capsules(self) -> int:
        """How many there are."""
        return self.width**2 * self.types

    def forward(self, features: Tensor) -> Tensor:
        u = rearrange(self.convolution(features), "b (t d) h w -> b (h w t) d", t=self.types)
        return squash(u, self.squash_form)


class Votes(nn.Module):
    """What each child says that each parent is: `u_hat_{j|i} = W_ij u_i`, a matrix for every pair.

    Shapes:
        - input: (B, capsules, in_dim)
        - output: (B, parents, capsules, out_dim)
    """

    AXES: ClassVar[Axes] = {"weight": ("", "", "outputs", "")}

    def __init__(self, *, capsules: int, in_dim: int, parents: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(capsules, in_dim, parents, out_dim))

    def forward(self, u: Tensor) -> Tensor:
        n, _, parents, dim = self.weight.shape
        u_hat = u.transpose(0, 1) @ self.weight.flatten(2)  # (n, B, parents * dim)
        # in one piece: a routing reads all votes several times, and training is a quarter faster for the copy
        return u_hat.view(n, -1, parents, dim).permute(1, 2, 0, 3).contiguous()


class SharedVotes(nn.Module):
    """Votes by one matrix for each parent, the same for all children (Gu and Tresp 2020): where a child lies is lost.

    Shapes:
        - input: (B, n, in_dim)
        - output: (B, parents, n, out_dim)
    """

    AXES: ClassVar[Axes] = {"weight": ("outputs", "", "")}

    def __init__(self, *, in_dim: int, parents: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(parents, in_dim, out_dim) / math.sqrt(in_dim))

    def forward(self, u: Tensor) -> Tensor:
        return u.unsqueeze(1) @ self.weight
