"""The decoder: a picture from the global capsule alone (Sec. 3.1, Sec. 3.3.2)."""

from collections.abc import Sequence

import torch
from einops import rearrange
from torch import Tensor, nn

NUM_CONVOLUTIONS = 4


class Decoder(nn.Module):
    """Four transposed convolutions from the `m` numbers of the global capsule to the image, each doubling the width.

    The paper gives no widths. The last convolution has no activation: an image may be scaled in any way.

    Shapes:
        - input: (B, 1, m)
        - output: (B, out_channels, image_size, image_size)
    """

    def __init__(self, *, num_concepts: int, channels: Sequence[int], out_channels: int, image_size: int) -> None:
        super().__init__()
        if len(channels) != NUM_CONVOLUTIONS:
            raise ValueError(f"the decoder has {len(channels)} channel numbers; give {NUM_CONVOLUTIONS}")
        self.image_size = image_size
        self.width = -(-image_size // 2**NUM_CONVOLUTIONS)
        self.spread = nn.Linear(num_concepts, self.width**2 * channels[0])
        layers: list[nn.Module] = []
        for in_channels, next_channels in zip(channels, [*channels[1:], out_channels], strict=True):
            layers += [
                nn.BatchNorm2d(in_channels),
                nn.ReLU(inplace=True),
                nn.ConvTranspose2d(in_channels, next_channels, 4, stride=2, padding=1, bias=False),
            ]
        self.layers = nn.Sequential(*layers)
        self.bias = nn.Parameter(torch.zeros(out_channels, 1, 1))  # batch normalisation follows the other three

    def forward(self, global_capsule: Tensor) -> Tensor:
        x = rearrange(self.spread(global_capsule), "b 1 (h w c) -> b c h w", h=self.width, w=self.width)
        image: Tensor = self.layers(x) + self.bias
        return image[:, :, : self.image_size, : self.image_size]
