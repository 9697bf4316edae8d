"""A plain convolutional network, the first thing to compare with."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from parsecaps.models.features import FeatureModel
from parsecaps.models.pretrained import Head
from parsecaps.nn.capsules import InitialBlock

CNN_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"grid_width": 28, "image_size": 224},
    "digits": {"grid_width": 14, "image_size": 28, "stem_channels": (16, 32, 32, 64), "channels": (24, 24, 24)},
    "tiny": {
        "grid_width": 16,
        "image_size": 32,
        "stem_channels": (8, 8, 16, 16),
        "channels": (16, 16, 16),
        "num_concepts": 3,
    },
}

_MOST_LAYERS = 100


class PlainCNN(FeatureModel):
    """Seven batch-normalised 3x3 convolutions, the mean over the positions, a linear layer for each head.

    The first four are the initial block of ParseCaps, and the other three halve the grid as its blocks do, so the
    two differ in what replaces the capsules and cost about the same.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    presets = CNN_PRESETS

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        head: Head = "parallel",
        grid_width: int = 28,
        stem_channels: Sequence[int] = (32, 64, 64, 64),
        channels: Sequence[int] = (64, 96, 96),
    ) -> None:
        config = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        super().__init__(config)
        if not 1 <= len(channels) <= _MOST_LAYERS:
            raise ValueError(f"channels has {len(channels)} numbers; give from 1 to {_MOST_LAYERS}")
        self.initial = InitialBlock(
            in_channels=in_channels,
            channels=stem_channels,
            image_size=image_size,
            grid_width=grid_width,
        )
        layers: list[nn.Module] = []
        last = stem_channels[-1]
        for width in channels:
            layers += [
                nn.Conv2d(last, width, 3, 2, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            last = width
        self.layers = nn.Sequential(*layers)
        self.add_heads(last)

    def last_map(self, image: Tensor) -> Tensor:
        return self.layers(self.initial(image))  # type: ignore[no-any-return]
