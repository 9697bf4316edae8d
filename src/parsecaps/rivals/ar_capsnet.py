"""AR CapsNet: attention routing, a gate over the types of capsules, in place of routing by agreement."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from parsecaps.rivals.attention_routing import AttentionClassCaps, AttentionConvCaps, AttentionPrimaryCaps
from parsecaps.rivals.class_capsules import ClassCapsuleModel

AR_PRESETS: dict[str, dict[str, Any]] = {
    "digits": {"image_size": 28, "layers": 1, "dim": 32},
    "medical": {"image_size": 64, "layers": 1, "dim": 16},
    "tiny": {
        "image_size": 32,
        "features": 8,
        "types": 4,
        "primary_dim": 4,
        "layers": 2,
        "dim": 6,
        "decoder_sizes": (32,),
    },
}

_MOST_LAYERS = 3


class ARCapsNet(ClassCapsuleModel):
    """Two convolutions, primary capsules, up to three layers of capsules, and class capsules (Choi et al. 2019).

    Every step from capsules to capsules is an attention over the types of children (`rivals.attention_routing`). The
    score of a class is the length of its capsule over sqrt(dim), the most that tanh allows. A class has a weight for
    every place of the last grid, so the weights grow with the area of the image. Deviations: pixels are standardised,
    and a convolution of stride 2 pads both sides alike.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits in [0, 1), class capsules and, where it was asked for, the picture of the longest

    >>> model = ARCapsNet.from_preset("digits", num_classes=10)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '5,312,528'
    """

    presets = AR_PRESETS
    largest_image = 128
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.3}

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 28,
        features: int = 64,
        types: int = 8,
        primary_dim: int = 16,
        layers: int = 1,
        dim: int = 32,
        decoder: bool | None = None,
        decoder_sizes: Sequence[int] = (512, 512),
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        if not 0 <= layers <= _MOST_LAYERS:
            raise ValueError(f"layers is {layers}; give from 0 to {_MOST_LAYERS}")
        stem: list[nn.Module] = []
        for channels in (in_channels, features):
            stem += [nn.Conv2d(channels, features, 3, padding=1), nn.BatchNorm2d(features), nn.ReLU(inplace=True)]
        self.stem = nn.Sequential(*stem)
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.primary = AttentionPrimaryCaps(in_channels=features, size=image_size, types=types, dim=primary_dim)
        width, last = self.primary.width, primary_dim
        layer_list = []
        for i in range(layers):
            layer = AttentionConvCaps(width=width, types=types, in_dim=last, dim=dim, stride=1 if i else 2)
            layer_list.append(layer)
            width, last = layer.width, dim
        self.layers = nn.Sequential(*layer_list)
        self.classes = AttentionClassCaps(width=width, types=types, in_dim=last, classes=num_classes, dim=dim)
        self.add_decoder(dim=dim, sizes=decoder_sizes)

    def capsules(self, image: Tensor) -> Tensor:
        classes: Tensor = self.classes(self.layers(self.primary(self.stem(image))))
        return classes

    def scores(self, capsules: Tensor) -> Tensor:
        return super().scores(capsules) / math.sqrt(capsules.shape[2])
