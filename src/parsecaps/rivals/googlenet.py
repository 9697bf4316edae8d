"""GoogLeNet, from scratch, without ImageNet weights."""

from typing import Any

import torch
from torch import Tensor, nn

from parsecaps.models.features import NARROW_PRESETS, SMALL_IMAGE, FeatureModel, check_width, scaled, start_he
from parsecaps.models.pretrained import Head

_BLOCKS = (  # channels: 1 x 1; 3 x 3 after a reduction; 5 x 5 after a reduction; 1 x 1 after pooling
    ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
)
_EPSILON = 1e-3  # of the normalisations, as in the reference that they come from


class Convolution(nn.Sequential):
    """A convolution that keeps the size unless it has a stride, its batch normalisation where wanted, and ReLU."""

    def __init__(self, in_channels: int, out_channels: int, kernel: int, *, batch_norm: bool, stride: int = 1) -> None:
        convolution = nn.Conv2d(in_channels, out_channels, kernel, stride, kernel // 2, bias=not batch_norm)
        norm = [nn.BatchNorm2d(out_channels, eps=_EPSILON)] if batch_norm else []
        super().__init__(convolution, *norm, nn.ReLU(inplace=True))


class Inception(nn.Module):
    """Four branches that see the same and are put side by side: 1 x 1, 3 x 3, 5 x 5 (or 3 x 3) and pooling.

    Shapes:
        - input: (B, in_channels, size, size)
        - output: (B, out_channels, size, size)
    """

    def __init__(self, in_channels: int, channels: tuple[int, ...], *, batch_norm: bool) -> None:
        super().__init__()
        one, reduce_three, three, reduce_five, five, pooled = channels

        def convolution(before: int, after: int, kernel: int) -> Convolution:
            return Convolution(before, after, kernel, batch_norm=batch_norm)

        self.branches = nn.ModuleList(
            [
                convolution(in_channels, one, 1),
                nn.Sequential(convolution(in_channels, reduce_three, 1), convolution(reduce_three, three, 3)),
                nn.Sequential(
                    convolution(in_channels, reduce_five, 1), convolution(reduce_five, five, 3 if batch_norm else 5)
                ),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(in_channels, pooled, 1)),
            ]
        )
        self.out_channels = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class GoogLeNet(FeatureModel):
    """The network of Szegedy et al. (2015), 22 layers of parallel branches, without its auxiliary heads.

    From scratch, without ImageNet weights. With `batch_norm`, as torchvision builds it: normalised, and a kernel of 3
    where the paper has 5. Without, as in the paper: local response normalisation, and a kernel of 5. Either starts as
    He et al. `width` is a factor on all channels. The first convolution halves images of more than 64 pixels and the
    pooling after it too; smaller ones keep their size there, with a kernel of 3.

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
        batch_norm: bool = True,
        width: float = 1.0,
        dropout: float = 0.2,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        check_width(width)
        small, first, last = image_size <= SMALL_IMAGE, scaled(64, width), scaled(192, width)
        kernel, stride = (3, 1) if small else (7, 2)
        layers: list[nn.Module] = [Convolution(in_channels, first, kernel, batch_norm=batch_norm, stride=stride)]
        layers += [] if small else [nn.MaxPool2d(3, 2, ceil_mode=True)]
        layers += [] if batch_norm else [nn.LocalResponseNorm(5)]
        layers += [Convolution(first, first, 1, batch_norm=batch_norm)]
        layers += [Convolution(first, last, 3, batch_norm=batch_norm)]
        layers += [] if batch_norm else [nn.LocalResponseNorm(5)]
        for blocks in _BLOCKS:
            layers += [nn.MaxPool2d(3, 2, ceil_mode=True)]
            for channels in blocks:
                block = Inception(last, tuple(scaled(each, width) for each in channels), batch_norm=batch_norm)
                layers += [block]
                last = block.out_channels
        self.layers = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        start_he(self)
        self.add_heads(last)

    @property
    def feature_map(self) -> nn.Module:
        return self.layers

    def last_map(self, image: Tensor) -> Tensor:
        return self.layers(image)  # type: ignore[no-any-return]

    def features(self, image: Tensor) -> Tensor:
        return self.dropout(super().features(image))  # type: ignore[no-any-return]
