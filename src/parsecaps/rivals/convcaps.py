"""Capsules on a grid, made by convolutions: the cells of DeepCaps (Rajasegaran et al. 2019).

A layer has `types` capsules at each of `width` x `width` positions. They lie in (B, n, d) row by row, and by type
within a position, which is a convolution's channels-last output as it is.
"""

import math

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.nn.capsules import CapsuleLayer


def halved(width: int) -> int:
    """The width of a grid after a convolution of stride 2 with padding.

    >>> [halved(width) for width in (28, 14, 7, 4)]
    [14, 7, 4, 2]
    """
    return -(-width // 2)


class ConvCaps(nn.Module):
    """A 3x3 convolution over all numbers of all capsules, without bias; then a squash of each new capsule.

    The weights start with a variance of one over the root of their number, as in the authors' code. With the smaller
    ones that are usual, the squash of each layer would leave less and less, and nothing after the second cell.

    Shapes:
        - input: (B, width * width * in_types, in_dim)
        - output: (B, width' * width' * types, dim), width' being that of the input, halved with a stride of 2
    """

    def __init__(self, *, width: int, in_types: int, in_dim: int, types: int, dim: int, stride: int = 1) -> None:
        super().__init__()
        self.width, self.dim = width, dim
        self.conv = nn.Conv2d(in_types * in_dim, types * dim, 3, stride, padding=1, bias=False)
        bound = math.sqrt(3) * self.conv.weight.numel() ** -0.25
        nn.init.uniform_(self.conv.weight, -bound, bound)
        self.conv.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, u: Tensor) -> Tensor:
        maps = rearrange(u, "b (h w t) d -> b (t d) h w", h=self.width, w=self.width)
        s = rearrange(self.conv(maps), "b (t d) h w -> b (h w t) d", d=self.dim)
        return squash(s, "quadratic")


class Routing3D(nn.Module):
    """Dynamic routing between types of capsules, of which each child votes by one convolution that all children share.

    A child is a type with all its positions; its votes are `V = W * u`, a 3x3 convolution from the `dim` numbers of the
    child to those of every parent. `c = softmax(b)` over the parents and all positions together, for each child; `s` is
    the sum of `c V` over the children and a bias; `v = squash(s)` by the length over numbers and positions, one for
    each parent; and `b` grows by the agreement `V . v` at each position after each of the `iterations` but the last.

    The authors write it as a 3D convolution over the numbers of all children in a row. Deviation: their code reshapes
    (H, W, types, dim) to that form without a transposition, which mixes positions with types; here a child is a child.

    Shapes:
        - input and output: (B, width * width * types, dim)
    """

    def __init__(self, *, width: int, types: int, dim: int, iterations: int = 3) -> None:
        super().__init__()
        if iterations < 1:
            raise ValueError(f"iterations is {iterations}; give at least 1")
        self.width, self.types, self.iterations = width, types, iterations
        self.conv = nn.Conv2d(dim, types * dim, 3, padding=1, bias=False)
        nn.init.kaiming_normal_(self.conv.weight)
        self.bias = nn.Parameter(torch.full((types, dim, 1, 1), 0.1))

    def forward(self, u: Tensor) -> Tensor:
        votes = self.votes(u)
        b = votes.new_zeros(*votes.shape[:3], *votes.shape[4:])  # (B, child, parent, h, w)
        for i in range(self.iterations):
            c = b.flatten(2).softmax(-1).view_as(b)
            s = einsum(c, votes, "b i j h w, b i j d h w -> b j d h w") + self.bias
            v = squash(s.flatten(2), "quadratic").view_as(s)
            if i + 1 < self.iterations:
                b = b + einsum(votes, v, "b i j d h w, b j d h w -> b i j h w")
        return rearrange(v, "b j d h w -> b (h w j) d")

    def votes(self, u: Tensor) -> Tensor:
        """Of every child for every parent at each position: (B, child, parent, dim, h, w)."""
        children = rearrange(u, "b (h w t) d -> (b t) d h w", h=self.width, w=self.width)
        votes: Tensor = self.conv(children)
        return rearrange(votes, "(b i) (j d) h w -> b i j d h w", i=self.types, j=self.types)


class DeepCapsCell(CapsuleLayer):
    """Four layers: `a` of stride 2, two more behind it, and a skip from `a`, which is added to them.

    The skip is a layer like the others, or with `iterations` the routing of the last cell.

    Shapes:
        - input: (B, width * width * in_types, in_dim)
        - output: (B, n, dim), n being types * halved(width) ** 2
    """

    def __init__(
        self, *, width: int, in_types: int, in_dim: int, types: int, dim: int, iterations: int | None = None
    ) -> None:
        super().__init__()
        self.width = halved(width)
        same = {"width": self.width, "types": types, "dim": dim}
        self.reduce = ConvCaps(width=width, in_types=in_types, in_dim=in_dim, types=types, dim=dim, stride=2)
        self.first = ConvCaps(in_types=types, in_dim=dim, **same)
        self.second = ConvCaps(in_types=types, in_dim=dim, **same)
        self.skip: nn.Module = (
            ConvCaps(in_types=types, in_dim=dim, **same)
            if iterations is None
            else Routing3D(iterations=iterations, **same)
        )

    def forward(self, u: Tensor) -> Tensor:
        a = self.reduce(u)
        capsules: Tensor = self.second(self.first(a)) + self.skip(a)
        return capsules
