"""Capsules before and beside routing: from pixels to primary capsules (Sec. 3.1), their grids, normalisation, votes."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm, check_form

# What lies along the axes of the tensors of a layer, in its `AXES`: "classes", "concepts", "capsules" of the top grid,
# or "outputs", which are classes or concepts by where the layer is; a blank is none of these.
Axes = dict[str, tuple[str, ...]]
Normalisation = Literal["batch", "layer"]
NUM_CONVOLUTIONS = 4
_MOMENTUM, _EPSILON = 0.1, 1e-5  # PyTorch's defaults


class CapsuleLayer(nn.Module):
    """A module that gives capsules (B, n, d), by which the capsule layers of any model are found."""


class CapsuleBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of each instantiation parameter, over the batch and all capsules: (B, n, d) -> (B, n, d)."""

    def forward(self, u: Tensor) -> Tensor:
        return super().forward(u.flatten(0, 1)).view_as(u)


class CapsuleScale(nn.Module):
    """The scale of a batch normalisation, with a running variance, where shifts do not matter: (B, n, d) -> (d,)."""

    running_var: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, u: Tensor) -> Tensor:
        variance, count = self.running_var, u.shape[0] * u.shape[1]
        if self.training:
            variance = u.to(self.running_var.dtype).var((0, 1), correction=0)
            with torch.no_grad():
                self.running_var.lerp_(variance * (count / max(1, count - 1)), _MOMENTUM)
        return self.weight * torch.rsqrt(variance + _EPSILON)


def capsule_norm(kind: Normalisation, dim: int, *, bias: bool = True) -> CapsuleBatchNorm | nn.LayerNorm:
    """`"layer"` is the paper's, `"batch"` the default (deviation, `docs/paper.md`)."""
    if kind not in get_args(Normalisation):
        raise ValueError(f"normalisation is {kind!r}; choose one of {', '.join(get_args(Normalisation))}")
    if kind == "layer":
        return nn.LayerNorm(dim, bias=bias)
    norm = CapsuleBatchNorm(dim)
    if not bias:
        norm.register_parameter("bias", None)
    return norm


def num_halvings(image_size: int, grid_width: int) -> int:
    """How often an image is halved so that the primary grid comes nearest to `grid_width`, by ratio.

    >>> [num_halvings(size, 28) for size in (28, 56, 112, 128, 224, 512)]
    [0, 1, 2, 2, 3, 4]
    """
    return max(0, round(math.log2(image_size / grid_width)))


class InitialBlock(nn.Module):
    """Four 3x3 convolutions with batch normalisation and ReLU, the `Phi^0` of Sec. 3.1.

    The paper gives neither channels nor strides. Here the first convolutions halve the image, as many of them as bring
    the grid near `grid_width`; if one is enough, the second convolution does (`studies/cell.md`). If four are not
    enough (about 630 px for a grid of 28), the image is first averaged down.

    Shapes:
        - input: (B, in_channels, image_size, image_size)
        - output: (B, channels[-1], width, width)
    """

    def __init__(self, *, in_channels: int, channels: Sequence[int], image_size: int, grid_width: int) -> None:
        super().__init__()
        if len(channels) != NUM_CONVOLUTIONS:
            raise ValueError(f"the initial block has {len(channels)} channel numbers; give {NUM_CONVOLUTIONS}")
        halvings = num_halvings(image_size, grid_width)
        factor = 2 ** max(0, halvings - NUM_CONVOLUTIONS)
        self.width, self.channels = image_size, channels[-1]
        layers: list[nn.Module] = []
        if factor > 1:
            layers.append(nn.AvgPool2d(factor, ceil_mode=True))
            self.width = -(-image_size // factor)
        for i, out_channels in enumerate(channels):
            stride = 2 if (i == 1 if halvings == 1 else i < halvings) else 1
            layers += [
                nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(out_channels),
                nn.ReLU(inplace=True),
            ]
            in_channels = out_channels
            self.width = -(-self.width // stride)
        # channels last, in memory: what convolutions are fastest with, and what capsules (B, n, d) are
        self.layers = nn.Sequential(*layers)
        self.layers.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.linear = next(i for i, layer in enumerate(layers) if isinstance(layer, nn.ReLU))

    @property
    def places(self) -> tuple[float, int]:
        """Where the first place is centred in the image, and how far places are apart, in pixels."""
        return places_behind(self.layers)[:2]

    @property
    def receptive_field(self) -> int:
        """The side of the square of pixels that a place of the output sees."""
        return round(2 * places_behind(self.layers)[2])

    def forward(self, image: Tensor) -> Tensor:
        return self.finish(self.begin(image))

    def begin(self, image: Tensor) -> Tensor:
        """The layers before the first ReLU, which are linear in the image."""
        features: Tensor = self.layers[: self.linear](image.contiguous(memory_format=torch.channels_last))
        return features

    def finish(self, features: Tensor) -> Tensor:
        """The layers from the first ReLU on."""
        features = self.layers[self.linear :](features)
        return features


class PrimaryCaps(CapsuleLayer):
    """One capsule per position of the feature map, by a pointwise convolution, normalisation and squash.

    Without `norm`, which the paper does not have, the convolution has a bias instead. With `places`, the number of
    positions, the usual capsule of each place is subtracted before the squash: a running mean over training images. So
    a place that looks as usual is silent.

    Shapes:
        - input: (B, in_channels, w, w)
        - output: U_1 (B, w * w, dim), row by row
    """

    usual: Tensor | None

    def __init__(
        self, *, in_channels: int, dim: int, squash_form: SquashForm, places: int = 0, norm: bool = True
    ) -> None:
        super().__init__()
        self.register_buffer("usual", torch.zeros(places, dim) if places else None)
        self.project = nn.Conv2d(in_channels, dim, 1, bias=not norm)
        self.norm = nn.BatchNorm2d(dim) if norm else nn.Identity()
        self.squash_form = check_form(squash_form)
        if norm:
            nn.init.constant_(self.norm.weight, 0.5)  # type: ignore[arg-type]  # neither vanishing nor saturated

    def forward(self, features: Tensor) -> Tensor:
        u = rearrange(self.norm(self.project(features)), "b d h w -> b (h w) d")
        if self.usual is not None:
            if self.training:
                with torch.no_grad():
                    self.usual.lerp_(u.mean(0).to(self.usual.dtype), _MOMENTUM)
            u = u - self.usual
        return squash(u, self.squash_form)


@dataclass(frozen=True)
class CapsuleGrid:
    """Where capsules lie in the image: `types` of them at each place of a square grid, centred at `first + i * step`.

    They come position by position, row by row, and at a position type by type. `reach` is how far a capsule sees to
    each side of its centre, in pixels; to the next one if None.
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
        return cls(width, types, *places_behind(layers))

    @property
    def capsules(self) -> int:
        """How many there are."""
        return self.width**2 * self.types


def places_behind(layers: Iterable[nn.Module]) -> tuple[float, int, float]:
    """The centre of the first place behind some layers, the step between places, and half the width that each sees."""
    first, step, width = 0.5, 1, 1
    for layer in layers:
        if isinstance(layer, nn.Conv2d | nn.AvgPool2d):
            given = (layer.kernel_size, layer.stride, layer.padding)
            kernel, stride, padding = (int(n[0] if isinstance(n, tuple) else n) for n in given)
            first += ((kernel - 1) / 2 - padding) * step
            width += (kernel - 1) * step
            step *= stride
    return first, step, width / 2


class ConvPrimaryCaps(CapsuleLayer):
    """Primary capsules of a convolution (Sabour, Frosst and Hinton 2017): `types` at each position, each squashed.

    A capsule is `dim` neighbouring channels at one position. They come position by position, row by row, and at a
    position type by type: capsule `(y * width + x) * types + type`. Deviation: weights start as in any convolution,
    about the same as in the authors' code. `width` is that of the grid.

    Shapes:
        - input: (B, in_channels, size, size)
        - output: (B, width * width * types, dim)
    """

    def __init__(self, *, in_channels: int, size: int, types: int, dim: int, kernel: int = 9, stride: int = 2) -> None:
        super().__init__()
        if size < kernel:
            raise ValueError(f"a map of {size} x {size} is smaller than the kernel of {kernel}; give larger images")
        self.types, self.dim = types, dim
        self.width = (size - kernel) // stride + 1
        self.convolution = nn.Conv2d(in_channels, types * dim, kernel, stride)
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # capsules are then in one piece

    @property
    def capsules(self) -> int:
        """How many there are."""
        return self.width**2 * self.types

    def grid(self, stem: nn.Sequential) -> CapsuleGrid:
        """Where the capsules lie in the image, behind the layers of a stem."""
        return CapsuleGrid.behind([*stem, self.convolution], width=self.width, types=self.types)

    def forward(self, features: Tensor) -> Tensor:
        return squash(rearrange(self.convolution(features), "b (t d) h w -> b (h w t) d", t=self.types), "quadratic")


class Votes(nn.Module):
    """Votes `u_hat_{j|i} = W_ij u_i` by a matrix for every pair: (B, n, in_dim) -> (B, parents, n, out_dim)."""

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
    """Votes by one matrix for each parent (Gu and Tresp 2020): (B, n, in_dim) -> (B, parents, n, out_dim)."""

    AXES: ClassVar[Axes] = {"weight": ("outputs", "", "")}

    def __init__(self, *, in_dim: int, parents: int, out_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(parents, in_dim, out_dim) / math.sqrt(in_dim))

    def forward(self, u: Tensor) -> Tensor:
        return u.unsqueeze(1) @ self.weight
