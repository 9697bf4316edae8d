"""Pixels on the scale that a network learns best on, as part of the network."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Standardise(nn.Module):
    """`(image - mean) / std` with a mean and a standard deviation per channel, which are saved with the weights.

    They are those of the images that a model was trained on; 0 and 1, which changes nothing, until `use` sets them.

    Shapes:
        - input and output: (B, channels, H, W)

    >>> standardise = Standardise(1)
    >>> standardise.use([0.5], [0.25])
    >>> standardise(torch.ones(1, 1, 1, 1)).item()
    2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(channels, 1, 1))
        self.register_buffer("std", torch.ones(channels, 1, 1))

    def use(self, mean: Sequence[float], std: Sequence[float]) -> None:
        """Set both, one number per channel."""
        self.mean.copy_(torch.tensor(mean).view_as(self.mean))
        self.std.copy_(torch.tensor(std).view_as(self.std))

    def forward(self, image: Tensor) -> Tensor:
        return (image - self.mean) / self.std
