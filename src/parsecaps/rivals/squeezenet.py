"""SqueezeNet, from scratch, without ImageNet weights."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.models.features import NARROW_PRESETS, SMALL_IMAGE, FeatureModel, check_width, scaled, start_he
from parsecaps.models.pretrained import Head

_FIRST = 96
_BLOCKS = (((16, 64), (16, 64), (32, 128)), ((32, 128), (48, 192), (48, 192), (64, 256)), ((64, 256),))


class Fire(nn.Module):
    """A 1 x 1 convolution to few channels, then 1 x 1 and 3 x 3 side by side, `expanded` each; ReLU after both.

    Shapes:
        - input: (B, in_channels, size, size)
        - output: (B, 2 expanded, size, size)
    """

    def __init__(self, in_channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(in_channels, squeezed, 1)
        self.expand_one = nn.Conv2d(squeezed, expanded, 1)
        self.expand_three = nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x))
        return F.relu(torch.cat([self.expand_one(x), self.expand_three(x)], 1))


class SqueezeNet(FeatureModel):
    """The small network of Iandola et al. (2016), version 1.0: 0.74 million parameters.

    From scratch, without ImageNet weights; without normalisations, so it starts as He et al. The original makes a map
    for each class, ReLU, and takes its mean; here the mean comes first and there is no ReLU, which would keep logits
    from falling below 0 and could end their learning. `width` is a factor on all channels. The first convolution halves
    images of more than 64 pixels; smaller ones keep their size there, with a kernel of 3.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    presets = NARROW_PRESETS

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
        width: float = 1.0,
        dropout: float = 0.5,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        check_width(width)
        last = scaled(_FIRST, width)
        kernel, stride, padding = (3, 1, 1) if image_size <= SMALL_IMAGE else (7, 2, 0)
        layers: list[nn.Module] = [nn.Conv2d(in_channels, last, kernel, stride, padding), nn.ReLU(inplace=True)]
        for blocks in _BLOCKS:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True)]
            for squeezed, expanded in blocks:
                layers += [Fire(last, scaled(squeezed, width), scaled(expanded, width))]
                last = 2 * scaled(expanded, width)
        self.layers = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        start_he(self)
        self.add_heads(last)

    @property
    def feature_map(self) -> nn.Module:
        return self.layers

    def last_map(self, image: Tensor) -> Tensor:
        return self.dropout(self.layers(image))  # type: ignore[no-any-return]
