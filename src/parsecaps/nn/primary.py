"""From pixels to primary capsules, the leaves of the parse tree (Sec. 3.1)."""

import math
from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm, check_form

NUM_CONVOLUTIONS = 4


def num_halvings(image_size: int, grid_width: int) -> int:
    """How often an image is halved so that the primary grid comes nearest to `grid_width`, by ratio.

    >>> [num_halvings(size, 28) for size in (28, 56, 112, 128, 224, 512)]
    [0, 1, 2, 2, 3, 4]
    """
    return max(0, round(math.log2(image_size / grid_width)))


class InitialBlock(nn.Module):
    """Four 3x3 convolutions with batch normalisation and ReLU, the `Phi^0` of Sec. 3.1.

    The paper gives neither channels nor strides. Here the first convolutions halve the image, as many of them as bring
    the grid near `grid_width`, so that any image size leads to about the same number of primary capsules. An image that
    is halved only once is small, and its details are few pixels wide: there the second convolution halves, after the
    first has looked at every pixel (`studies/cell.md`). Where four are not enough (about 630 px for a grid of 28), the
    image is first averaged down.

    Shapes:
        - input: (B, in_channels, image_size, image_size)
        - output: (B, channels[-1], width, width)
    """

    def __init__(
        self,
        *,
        in_channels: int,
        channels: Sequence[int],
        image_size: int,
        grid_width: int,
    ) -> None:
        super().__init__()
        if len(channels) != NUM_CONVOLUTIONS:
            raise ValueError(f"the initial block has {len(channels)} channel numbers; give {NUM_CONVOLUTIONS}")
        halvings = num_halvings(image_size, grid_width)
        factor = 2 ** max(0, halvings - NUM_CONVOLUTIONS)
        self.width = image_size
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

    def forward(self, image: Tensor) -> Tensor:
        features: Tensor = self.layers(image.contiguous(memory_format=torch.channels_last))
        return features


class PrimaryCaps(nn.Module):
    """One capsule per position of the feature map, by a pointwise convolution, normalisation and squash.

    Shapes:
        - input: (B, in_channels, w, w)
        - output: U_1 (B, w * w, dim), row by row
    """

    def __init__(self, *, in_channels: int, dim: int, squash_form: SquashForm) -> None:
        super().__init__()
        self.project = nn.Conv2d(in_channels, dim, 1, bias=False)
        self.norm = nn.BatchNorm2d(dim)
        self.squash_form = check_form(squash_form)
        nn.init.constant_(self.norm.weight, 0.5)  # capsules start neither vanishing nor saturated

    def forward(self, features: Tensor) -> Tensor:
        u = rearrange(self.norm(self.project(features)), "b d h w -> b (h w) d")
        return squash(u, self.squash_form)
