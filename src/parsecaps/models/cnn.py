"""Convolutional networks: their base class, and a plain one as a first baseline."""

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Self

from torch import Tensor, nn

from parsecaps.models.pretrained import Head, Presets, PretrainedModel, check_head
from parsecaps.nn.capsules import Axes, InitialBlock
from parsecaps.nn.heads import Bottleneck, LinearConcepts
from parsecaps.nn.trunk import TRUNKS, TrunkBlock, TrunkSource
from parsecaps.types import Output

SMALL_IMAGE = 64  # pixels a side; up to this, five halvings would leave 2 x 2 positions, and networks halve less often
SIZE_PRESETS: Presets = {
    "medical": {"image_size": 224},
    "digits": {"image_size": 28},
    "tiny": {"image_size": 32, "num_concepts": 3},
}
NARROW_PRESETS: Presets = {**SIZE_PRESETS, "tiny": {**SIZE_PRESETS["tiny"], "width": 0.125}}
_WIDEST = 4.0
_MOST_LAYERS = 100


class FeatureModel(PretrainedModel):
    """Features, then a linear layer for the classes and one for the concepts.

    Concepts are presences alone, without capsules; with `head="bottleneck"` they decide, as in a concept bottleneck
    model. A model with its own heads uses the `num_features` features of any of these, `without_heads`.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    AXES: ClassVar[Axes] = {"classes.weight": ("classes", ""), "classes.bias": ("classes",)}

    num_features: int
    layers: nn.Module

    @property
    def feature_map(self) -> nn.Module | None:
        """The layer that gives the last feature map, for Grad-CAM; None if that is the last convolution."""
        return None

    def add_heads(self, num_features: int, head: Head, dropout: float = 0.0) -> None:
        """Put the heads on the features, once the layers before them are there; `dropout` is of the features."""
        check_head(head, self.num_concepts)
        self.num_features = num_features
        self.dropout = nn.Dropout(dropout)
        m, k = self.num_concepts, self.num_classes
        self.concepts = LinearConcepts(in_dim=num_features, num_concepts=m) if m else None
        self.classes: nn.Linear | Bottleneck
        bottleneck = head == "bottleneck"
        self.classes = Bottleneck(num_concepts=m, num_classes=k) if bottleneck else nn.Linear(num_features, k)

    def without_heads(self) -> Self:
        """This network as a part of another one, which calls `features` on images that it has standardised itself."""
        del self.classes, self.concepts, self.standardise
        return self

    def up_to_map(self) -> Self:
        """The same for another one that calls `last_map`."""
        return self.without_heads()

    @property
    def map_channels(self) -> int:
        """The channels of the last map."""
        return self.num_features

    def last_map(self, image: Tensor) -> Tensor:
        """The last feature map: (B, in_channels, image_size, image_size) -> (B, map_channels, h, w)."""
        return self.layers(image)  # type: ignore[no-any-return]

    def trunk_layers(self) -> list[nn.Module]:
        """The layers up to the last map, each fed by the one before: for `nn.trunk`."""
        return list(self.layers.children())

    def features(self, image: Tensor) -> Tensor:
        """Its mean over the positions: (B, in_channels, image_size, image_size) -> (B, num_features)."""
        return self.dropout(self.last_map(image).mean((2, 3)))  # type: ignore[no-any-return]

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        features = self.features(image)
        presence = None if self.concepts is None else self.concepts(features)
        if isinstance(self.classes, Bottleneck):
            logits, contributions = self.classes(presence)
            return Output(logits, contributions, presence=presence)
        return Output(self.classes(features), presence=presence)


class PlainCNN(FeatureModel):
    """The initial block of ParseCaps, three convolutions that halve the grid as its blocks do, and linear heads."""

    presets: ClassVar[Presets] = {
        "medical": {"grid_width": 28, "image_size": 224},
        "digits": {"grid_width": 14, "image_size": 28, "stem_channels": (16, 32, 32, 64), "channels": (24, 24, 24)},
        "tiny": {**SIZE_PRESETS["tiny"], "grid_width": 16, "stem_channels": (8, 8, 16, 16), "channels": (16, 16, 16)},
    }

    def build_layers(
        self,
        *,
        head: Head = "parallel",
        grid_width: int = 28,
        stem_channels: Sequence[int] = (32, 64, 64, 64),
        channels: Sequence[int] = (64, 96, 96),
    ) -> None:
        if not 1 <= len(channels) <= _MOST_LAYERS:
            raise ValueError(f"channels has {len(channels)} numbers; give from 1 to {_MOST_LAYERS}")
        self.initial = InitialBlock(
            in_channels=self.in_channels, channels=stem_channels, image_size=self.image_size, grid_width=grid_width
        )
        layers: list[nn.Module] = []
        for last, width in pairwise((stem_channels[-1], *channels)):
            layers += [nn.Conv2d(last, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        self.layers = nn.Sequential(*layers)
        self.add_heads(channels[-1], head)

    def trunk_layers(self) -> list[nn.Module]:
        return [*self.initial.layers, *self.layers.children()]

    def last_map(self, image: Tensor) -> Tensor:
        return self.layers(self.initial(image))  # type: ignore[no-any-return]


class TrunkCNN(FeatureModel):
    """Linear heads on a trunk: on its maps of the whole image, averaged over the positions.

    Same layers, weights and fine-tuning as the context of ParseCaps' preset `trunk`; only what stands on them differs.
    """

    presets = SIZE_PRESETS

    def build_layers(self, *, head: Head = "parallel", trunk: str = "lite0", dropout: float = 0.2) -> None:
        self.layers = TrunkBlock(trunk=trunk, in_channels=self.in_channels, image_size=self.image_size)
        self.add_heads(self.layers.channels, head, dropout)

    @property
    def feature_map(self) -> nn.Module:
        return self.layers


def as_trunk(kind: type[FeatureModel]) -> TrunkSource:
    """A convolutional network as a trunk without weights, in the size for large images."""

    def layers(in_channels: int, size: int) -> list[nn.Module]:
        return kind.from_preset("medical", num_classes=1, in_channels=in_channels, image_size=224).trunk_layers()

    return TrunkSource(layers=layers)


TRUNKS["PlainCNN"] = as_trunk(PlainCNN)


def check_width(width: float) -> None:
    """Refuse a factor on the channels that makes no usable network."""
    if not 0 < width <= _WIDEST:
        raise ValueError(f"width is {width}; give 1 (as published), or another number above 0 and at most {_WIDEST:g}")


def scaled(channels: int, width: float) -> int:
    """A number of channels of a network that is narrower or wider than published.

    >>> scaled(64, 1.0), scaled(64, 0.25), scaled(2, 0.1)
    (64, 16, 1)
    """
    check_width(width)
    return max(1, round(channels * width))
