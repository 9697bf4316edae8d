"""The three-layer network of the paper's comparison of routings (Sec. 4.3.3, Tab. 7), and SAA routing to classes."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.models.pretrained import Presets, PretrainedModel
from parsecaps.nn.capsules import Axes, CapsuleLayer, ConvPrimaryCaps
from parsecaps.nn.couplings import Coupling, OneHead
from parsecaps.nn.routing import Way
from parsecaps.rivals.ar_capsnet import AttentionClassCaps
from parsecaps.rivals.class_capsules import (
    ClassCapsuleModel,
    ClassCapsules,
    ClassMessages,
    ClassRoutingConfig,
    channels_last,
)

ROUTINGS_COMPARED = ("dynamic", "attention", "self-attention", "saa")
_KERNEL = 9  # of the primary capsules
_ALPHA = 1.5  # of entmax
_VALUES = ("value", "axial_value")


class SAAClassCaps(CapsuleLayer):
    """Class capsules by SAA routing (Alg. 1): each class chooses its children, once, without votes for every pair.

    The children lie on a grid with several types at each place; classes have no place. Of Alg. 1 there is

    - the query: PConvCaps on the map of `types * in_dim` channels, its depthwise kernel, one for each class, as large
      as the map; then layer normalisation and the pointwise map;
    - sparse attention: keys are pointwise in the children, `C_s = entmax(Q K^T / sqrt(d))` over all of them;
    - axial attention: "the children on the parents' grid" are what that kernel collects for each class;
      `C_a = entmax(Q^T K_a / sqrt(K) + prior)`, as in `nn.saa`;
    - values: each class has its own map (deviation: on a grid all parents share one).

    No vote is ever made: keys and values are linear, so the query is brought to the children, and what a class has
    collected is mapped to its values once. The last way is the sparse one.

    Shapes:
        - input: (B, width * width * types, in_dim), position by position, and at a position type by type
        - output: class capsules (B, classes, dim), the sum of two squashed vectors, so of length below 2
        - couplings: sparse (B, classes, capsules), axial (B, dim, dim), both without heads
    """

    AXES: ClassVar[Axes] = {"depthwise": ("outputs", ""), **dict.fromkeys(_VALUES, ("outputs", "", ""))}

    def __init__(self, *, width: int, types: int, in_dim: int, classes: int, dim: int) -> None:
        super().__init__()
        places, channels = self.map_shape = (width**2, types * in_dim)
        self.depthwise = nn.Parameter(torch.randn(classes, places) / math.sqrt(places))
        self.norm = nn.LayerNorm(channels)
        self.pointwise = nn.Linear(channels, dim)
        self.key = nn.Parameter(torch.randn(dim, in_dim) / math.sqrt(in_dim))
        self.value = nn.Parameter(torch.randn(classes, in_dim, dim) / math.sqrt(in_dim))
        self.axial_key = nn.Linear(channels, dim, bias=False)
        self.axial_value = nn.Parameter(torch.randn(classes, channels, dim) / math.sqrt(channels))
        # just below 1 / (alpha - 1), where entmax gives all to one and the prior would have no gradient
        self.axial_prior = nn.Parameter(0.95 / (_ALPHA - 1) * torch.eye(dim))
        kept: dict[str, Any] = {"dim": -1, "alpha": _ALPHA, "layout": OneHead()}
        self.axial_coupling = Coupling(branch="axial", between="parameters", **kept)
        self.axial_way = Way("axial", chooses=False)
        self.coupling = Coupling(branch="sparse", **kept)
        self.way = Way("sparse", chooses=True)

    def forward(self, u: Tensor) -> Tensor:
        kernel = self.depthwise.expand(u.shape[0], -1, -1)  # written out, for `@` would copy the children
        collected = torch.bmm(kernel, u.reshape(u.shape[0], *self.map_shape))  # (B, K, types * in_dim)
        q = self.pointwise(self.norm(collected))
        asked = q @ (self.key / math.sqrt(q.shape[2]))  # (B, K, in_dim): q (W u) = (q W) u
        c = self.coupling(asked @ u.mT)  # (B, K, n)
        chosen = ClassMessages(lambda: c, lambda direction: _by_class(direction, self.value.mT) @ u.mT)
        sparse = self.way(_by_class(c @ u, self.value), chosen)
        prior = self.axial_prior.expand(q.shape[0], -1, -1)
        logits = torch.baddbmm(prior, q.mT, self.axial_key(collected), alpha=1 / math.sqrt(q.shape[1]))
        c_axial = self.axial_coupling(logits)  # (B, d, d): which instantiation parameters each one is made of
        weighed = ClassMessages(partial(self._weights_of_places, u), partial(self._said_from_places, u, c_axial))
        axial = self.axial_way(_by_class(collected, self.axial_value) @ c_axial.mT, weighed)
        return squash(torch.stack([sparse, axial]), "quadratic").sum(0)

    def _weights_of_places(self, u: Tensor) -> Tensor:
        types = u.shape[1] // self.map_shape[0]
        return self.depthwise.repeat_interleave(types, 1).expand(len(u), -1, -1)

    def _said_from_places(self, u: Tensor, c: Tensor, direction: Tensor) -> Tensor:
        asked = _by_class(direction @ c, self.axial_value.mT)  # (B, K, types * in_dim)
        asked = rearrange(asked, "b k (t i) -> b k t i", i=u.shape[2])
        places = rearrange(u, "b (p t) i -> b p t i", p=self.map_shape[0])
        return einsum(asked, places, "b k t i, b p t i -> b k p t").flatten(2)


def _by_class(x: Tensor, weight: Tensor) -> Tensor:
    """A linear map of its own for each class: (B, K, i), (K, i, d) -> (B, K, d)."""
    return (x.transpose(0, 1) @ weight).transpose(0, 1)


class ThreeLayerCaps(ClassCapsuleModel):
    """A 3 x 3 convolution of stride 2, primary capsules, and class capsules by one of four routings.

    `routing` is `dynamic` (Sabour et al. 2017, three iterations), `attention` (Choi et al. 2019), `self-attention`
    (Mazzia et al. 2021) or `saa` (ours). The paper gives only the kernel and stride of the first convolution; the other
    sizes are CapsNet's: at 28 pixels 1152 primary capsules of 8 and class capsules of 16. Attention has no dropout
    here.

    Shapes:
        - output: `Output` with lengths as logits (with attention over sqrt(class_dim)), and class capsules

    >>> model = ThreeLayerCaps.from_preset("digits", num_classes=10, routing="dynamic")
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '6,785,792'
    """

    presets: ClassVar[Presets] = {
        "digits": {"image_size": 28},
        "medical": {"image_size": 64, "features": 64},
        "tiny": {"image_size": 32, "features": 8, "types": 4, "primary_dim": 4, "class_dim": 8},
    }
    image_size = 28
    largest_image = 64
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0}
    without_decoder = PretrainedModel.without_decoder

    primary: ConvPrimaryCaps

    def build_layers(
        self, *, features: int = 256, types: int = 32, primary_dim: int = 8, class_dim: int = 16, routing: str = "saa"
    ) -> None:
        if routing not in ROUTINGS_COMPARED:
            raise ValueError(f"routing is {routing!r}; choose one of {', '.join(ROUTINGS_COMPARED)}")
        self.stem = channels_last(nn.Conv2d(self.in_channels, features, 3, 2, padding=1), nn.ReLU(inplace=True))
        size = -(-self.image_size // 2)
        self.primary = ConvPrimaryCaps(
            in_channels=features, size=size, types=types, dim=primary_dim, kernel=_KERNEL, stride=1
        )
        parents: dict[str, Any] = {"classes": self.num_classes, "dim": class_dim}
        grid = {"width": self.primary.width, "types": types, "in_dim": primary_dim}
        if routing == "saa":
            self.classes = SAAClassCaps(**grid, **parents)
        elif routing == "attention":
            self.classes = AttentionClassCaps(**grid, **parents, dropout=0.0)
        else:
            config = ClassRoutingConfig(capsules=self.primary.capsules, **parents)
            self.classes = ClassCapsules(in_dim=primary_dim, routing=routing, config=config)

    def scores(self, capsules: Tensor) -> Tensor:
        scores = super().scores(capsules)
        return scores / capsules.shape[2] ** 0.5 if self.config["routing"] == "attention" else scores
