"""OrthCaps in its shallow form, after the paper's description (Geng et al. 2024)."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.models.pretrained import PretrainedModel, check_counts
from parsecaps.nn.capsules import CapsuleLayer, num_halvings
from parsecaps.nn.heads import length
from parsecaps.rivals.convcaps import halved
from parsecaps.rivals.orthogonal import CapsulePruning, OrthBlock, OrthClassCaps
from parsecaps.types import Output

ORTHCAPS_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 224},
    "digits": {"image_size": 28},
    "tiny": {"image_size": 32, "stem_channels": (8, 8, 16, 16), "types": 4, "dim": 8},
}

_GRID = 28  # the width of the stem's grid in the authors' later code, at 224 pixels
_CONVOLUTIONS = 4


class OrthCaps(PretrainedModel):
    """Primary capsules, pruned of those that repeat others, then orthogonal sparse attention in place of iterations.

    The shallow network of the paper, after its description: the code that it names was never published. Sizes are those
    of the network of that name in the later code of the same authors, for 224 pixels: a stem of four convolutions, 8
    primary types, a block of two capsule layers with 16, and classes. Its routing weights, pruning and entmax do not do
    there what the paper says; here they do. Beyond that, capsules end each layer with a squash, so that a length
    is a score from 0 to 1, and the stem halves smaller images less often, so that the grids are about the same.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits in [0, 1) and class capsules

    >>> model = OrthCaps.from_preset("medical", num_classes=3)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '309,840'
    """

    presets = ORTHCAPS_PRESETS
    names_concepts = False
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0}

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        stem_channels: Sequence[int] = (32, 64, 128, 128),
        types: int = 8,
        dim: int = 16,
        theta: float = 0.7,
        dropout: float = 0.3,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        check_counts(stem_channels=stem_channels, types=types, dim=dim)
        if len(stem_channels) != _CONVOLUTIONS:
            raise ValueError(f"stem_channels has {len(stem_channels)} numbers; give {_CONVOLUTIONS}")
        if not 0 <= dropout < 1:
            raise ValueError(f"dropout is {dropout}; give a number from 0 to below 1")
        self.stem, width = _stem(in_channels, stem_channels, image_size)
        self.primary = OrthPrimaryCaps(in_channels=stem_channels[-1], types=types, dim=dim)
        self.pruning = CapsulePruning(types=types, theta=theta)
        width = halved(width)
        self.block = OrthBlock(width=width, in_types=types, types=2 * types, dim=dim)
        width = halved(width)
        self.classes = OrthClassCaps(width=width, types=2 * types, dim=dim, num_classes=num_classes, dropout=dropout)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        if reconstruct:
            raise ValueError("OrthCaps has no decoder; call it without reconstruct")
        primary = self.primary(self.stem(image.contiguous(memory_format=torch.channels_last)))
        capsules = self.classes(self.block(self.pruning(primary)))
        return Output(length(capsules), class_capsules=capsules)


class OrthPrimaryCaps(CapsuleLayer):
    """A depthwise 3x3 convolution of stride 2 and a pointwise one, then a squash of each capsule.

    Shapes:
        - input: (B, in_channels, w, w)
        - output: (B, ceil(w / 2) ** 2 * types, dim)
    """

    def __init__(self, *, in_channels: int, types: int, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, in_channels, 3, 2, padding=1, groups=in_channels),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(in_channels, types * dim, 1),
        )

    def forward(self, features: Tensor) -> Tensor:
        return squash(rearrange(self.layers(features), "b (t d) h w -> b (h w t) d", d=self.dim), "quadratic")


def _stem(in_channels: int, channels: Sequence[int], width: int) -> tuple[nn.Sequential, int]:
    """Four convolutions, of which the last ones halve the grid as often as brings it near 28, and that grid's width."""
    halvings = min(num_halvings(width, _GRID), _CONVOLUTIONS - 1)
    layers: list[nn.Module] = []
    for i, out in enumerate(channels):
        kernel, stride = 5 if i == 0 else 3, 2 if i >= _CONVOLUTIONS - halvings else 1
        layers += [
            nn.Conv2d(in_channels, out, kernel, stride, padding=kernel // 2, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        ]
        in_channels, width = out, halved(width) if stride == 2 else width
    stem = nn.Sequential(*layers)
    stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return stem, width
