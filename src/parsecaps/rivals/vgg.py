"""VGG-19, from scratch, without ImageNet weights."""

from collections.abc import Sequence
from typing import Any, Self

from torch import Tensor, nn

from parsecaps.models.features import NARROW_PRESETS, SMALL_IMAGE, FeatureModel, check_width, scaled, start_he
from parsecaps.models.pretrained import Head

_STAGES = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))  # channels and convolutions, a halving after each
_STAGES_16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
_HIDDEN = 4096
_GRID = 7  # positions along a side that the first linear layer sees at most


class VGG19(FeatureModel):
    """The network of Simonyan and Zisserman (2015) with 16 convolutions of 3 x 3 and three linear layers.

    From scratch, without ImageNet weights; without normalisations, so it starts as He et al. The last feature map is
    averaged to at most 7 x 7 for the linear layers, which have most of the 140 million weights. `width` is a factor on
    all channels. Images up to 64 pixels are not halved after the last two stages, which would leave 2 x 2.

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
        halvings = 3 if image_size <= SMALL_IMAGE else len(_STAGES)
        self.layers = vgg_layers(_STAGES, in_channels, width, halvings)
        last, hidden = self.map_channels, scaled(_HIDDEN, width)
        grid = image_size >> halvings
        self.pool = nn.AdaptiveAvgPool2d(_GRID) if grid > _GRID else nn.Identity()
        self.linear = nn.Sequential(
            nn.Flatten(),
            nn.Linear(last * min(grid, _GRID) ** 2, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
            nn.Linear(hidden, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(dropout),
        )
        start_he(self)
        self.add_heads(hidden)

    @property
    def feature_map(self) -> nn.Module:
        return self.layers

    @property
    def map_channels(self) -> int:
        return scaled(_STAGES[-1][0], self.config["width"])

    def up_to_map(self) -> Self:
        del self.linear, self.pool
        return super().up_to_map()

    def last_map(self, image: Tensor) -> Tensor:
        return self.layers(image)  # type: ignore[no-any-return]

    def features(self, image: Tensor) -> Tensor:
        return self.linear(self.pool(self.last_map(image)))  # type: ignore[no-any-return]


class ConvVGG16(FeatureModel):
    """The 13 convolutions of VGG-16 and their mean over the positions, as networks with maps of concepts use them.

    From scratch, without ImageNet weights, as `VGG19`. It does not halve after the last stage: the last map has 14 x 14
    positions for 224 pixels. Images up to 64 pixels are not halved after the last two.

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
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        check_width(width)
        self.layers = vgg_layers(_STAGES_16, in_channels, width, 3 if image_size <= SMALL_IMAGE else 4)
        start_he(self)
        self.add_heads(scaled(_STAGES_16[-1][0], width))

    @property
    def feature_map(self) -> nn.Module:
        return self.layers

    def last_map(self, image: Tensor) -> Tensor:
        return self.layers(image)  # type: ignore[no-any-return]


def vgg_layers(stages: Sequence[tuple[int, int]], in_channels: int, width: float, halvings: int) -> nn.Sequential:
    """The convolutions of a VGG by stages of channels and their number, with a halving after so many stages."""
    layers: list[nn.Module] = []
    last = in_channels
    for stage, (channels, count) in enumerate(stages):
        for _ in range(count):
            layers += [nn.Conv2d(last, scaled(channels, width), 3, padding=1), nn.ReLU(inplace=True)]
            last = scaled(channels, width)
        layers += [nn.MaxPool2d(2)] if stage < halvings else []
    return nn.Sequential(*layers)
