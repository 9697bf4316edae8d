"""The three-layer network of the paper's comparison of routings (Sec. 4.3.3, Tab. 7): only the routing varies."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from parsecaps.nn.capsules import ConvPrimaryCaps
from parsecaps.rivals.attention_routing import AttentionClassCaps
from parsecaps.rivals.class_capsules import ClassCapsuleModel
from parsecaps.rivals.class_routing import ClassCapsules, ClassRoutingConfig
from parsecaps.rivals.saa_classes import SAAClassCaps

THREE_LAYER_PRESETS: dict[str, dict[str, Any]] = {
    "digits": {"image_size": 28},
    "medical": {"image_size": 64, "features": 64},
    "tiny": {"image_size": 32, "features": 8, "types": 4, "primary_dim": 4, "class_dim": 8},
}

_KERNEL = 9  # of the primary capsules


def _by_agreement(primary: ConvPrimaryCaps, classes: int, dim: int) -> nn.Module:
    config = ClassRoutingConfig(capsules=primary.capsules, classes=classes, dim=dim)
    return ClassCapsules(in_dim=primary.dim, routing="dynamic", config=config)


def _by_self_attention(primary: ConvPrimaryCaps, classes: int, dim: int) -> nn.Module:
    config = ClassRoutingConfig(capsules=primary.capsules, classes=classes, dim=dim)
    return ClassCapsules(in_dim=primary.dim, routing="self-attention", config=config)


def _by_attention(primary: ConvPrimaryCaps, classes: int, dim: int) -> nn.Module:
    return AttentionClassCaps(
        width=primary.width, types=primary.types, in_dim=primary.dim, classes=classes, dim=dim, dropout=0.0
    )


def _by_saa(primary: ConvPrimaryCaps, classes: int, dim: int) -> nn.Module:
    return SAAClassCaps(width=primary.width, types=primary.types, in_dim=primary.dim, classes=classes, dim=dim)


ROUTINGS_COMPARED: dict[str, Callable[[ConvPrimaryCaps, int, int], nn.Module]] = {
    "dynamic": _by_agreement,
    "attention": _by_attention,
    "self-attention": _by_self_attention,
    "saa": _by_saa,
}


class ThreeLayerCaps(ClassCapsuleModel):
    """A 3 x 3 convolution of stride 2, primary capsules, and class capsules by one of four routings.

    `routing` is `dynamic` (Sabour et al. 2017, three iterations), `attention` (Choi et al. 2019), `self-attention`
    (Mazzia et al. 2021) or `saa` (ours). The paper gives no more than the kernel and stride of the first convolution;
    the other sizes are CapsNet's: at 28 pixels 1152 primary capsules of 8 and class capsules of 16. Attention comes
    without its dropout, which the others do not have. There is no decoder.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with lengths as logits (with attention over sqrt(class_dim)), and class capsules

    >>> model = ThreeLayerCaps.from_preset("digits", num_classes=10, routing="dynamic")
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '6,785,792'
    """

    presets = THREE_LAYER_PRESETS
    largest_image = 64
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0}

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 28,
        features: int = 256,
        types: int = 32,
        primary_dim: int = 8,
        class_dim: int = 16,
        routing: str = "saa",
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        if routing not in ROUTINGS_COMPARED:
            raise ValueError(f"routing is {routing!r}; choose one of {', '.join(ROUTINGS_COMPARED)}")
        self.stem = nn.Sequential(nn.Conv2d(in_channels, features, 3, 2, padding=1), nn.ReLU(inplace=True))
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        size = -(-image_size // 2)
        self.primary = ConvPrimaryCaps(
            in_channels=features, size=size, types=types, dim=primary_dim, kernel=_KERNEL, stride=1
        )
        self.classes = ROUTINGS_COMPARED[routing](self.primary, num_classes, class_dim)

    def capsules(self, image: Tensor) -> Tensor:
        classes: Tensor = self.classes(self.primary(self.stem(image)))
        return classes

    def scores(self, capsules: Tensor) -> Tensor:
        scores = super().scores(capsules)
        return scores / capsules.shape[2] ** 0.5 if self.config["routing"] == "attention" else scores
