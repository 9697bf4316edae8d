"""Efficient-CapsNet: few capsules, of a depthwise convolution as large as the map, routed by self-attention."""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.models.pretrained import Presets
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.rivals.class_capsules import ClassCapsuleModel, ClassCapsules, ClassRoutingConfig, channels_last

_LARGE = 48  # from this size on the first convolution halves the image
_SLOPE = 0.3  # of LeakyReLU, Keras' default
_EPSILON = 1e-3  # of both normalisations, Keras' default


class EfficientCapsNet(ClassCapsuleModel):
    """Four convolutions, primary capsules that each see the whole image, and self-attention (Mazzia et al. 2021).

    There are always `channels[-1] / primary_dim` capsules. Images below 48 pixels have the layers of the authors' net
    for MNIST (first kernel 5, ReLU, batch normalisation), larger ones those for smallNORB (first kernel 7 of stride 2,
    LeakyReLU, instance normalisation). Each normalisation follows its activation. Deviations: pixels are standardised,
    scales of instance normalisation start at 1 and not at random, and the decoder is that for MNIST at every size.

    >>> model = EfficientCapsNet.from_preset("digits", num_classes=10, decoder=False)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '161,824'
    """

    presets: ClassVar[Presets] = {
        "digits": {"image_size": 28},
        "medical": {"image_size": 64},
        "tiny": {"image_size": 32, "channels": (8, 8, 8, 16), "primary_dim": 4, "class_dim": 8, "decoder_sizes": (32,)},
    }
    image_size = 28
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.392}

    def build_layers(
        self,
        *,
        channels: Sequence[int] = (32, 64, 64, 128),
        primary_dim: int = 8,
        class_dim: int = 16,
        decoder: bool | None = None,
        decoder_sizes: Sequence[int] = (512, 1024),
    ) -> None:
        if len(channels) != 4 or primary_dim < 1 or channels[-1] % primary_dim:
            wanted = f"give four, of which the last is a multiple of primary_dim, {primary_dim}"
            raise ValueError(f"channels is {list(channels)}; {wanted}")
        large = self.image_size >= _LARGE
        layers: list[nn.Module] = []
        width, last = self.image_size, self.in_channels
        for i, (count, kernel) in enumerate(zip(channels, (7 if large else 5, 3, 3, 3), strict=True)):
            stride = 2 if i == 3 or (i == 0 and large) else 1
            convolution = nn.Conv2d(last, count, kernel, stride)
            nn.init.kaiming_normal_(convolution.weight)
            nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
            # groups of one channel are instance normalisation, whose own layer cannot take an empty batch
            norm = nn.GroupNorm(count, count, eps=_EPSILON) if large else nn.BatchNorm2d(count, eps=_EPSILON)
            layers += [convolution, nn.LeakyReLU(_SLOPE) if large else nn.ReLU(), norm]
            width, last = (width - kernel) // stride + 1, count
        self.stem = channels_last(*layers)
        self.primary = WholeMapCaps(channels=last, width=width, dim=primary_dim)
        children = last // primary_dim
        config = ClassRoutingConfig(
            capsules=children, classes=self.num_classes, dim=class_dim, squash_form="exponential"
        )
        self.classes = ClassCapsules(in_dim=primary_dim, routing="self-attention", config=config)
        nn.init.normal_(self.classes.votes.weight, std=math.sqrt(2 / (children * primary_dim)))
        self.add_decoder(decoder, dim=class_dim, sizes=decoder_sizes)


class WholeMapCaps(CapsuleLayer):
    """Capsules of a depthwise kernel as large as the map: (B, channels, width, width) -> (B, channels / dim, dim)."""

    def __init__(self, *, channels: int, width: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.depthwise = nn.Conv2d(channels, channels, width, groups=channels)

    def forward(self, features: Tensor) -> Tensor:
        u = self.depthwise(features.contiguous())
        return squash(rearrange(u, "b (n d) 1 1 -> b n d", d=self.dim), "exponential")
