"""Networks that make one vector of features of an image: the baselines share what follows it."""

from abc import abstractmethod
from typing import Any, ClassVar, Self

from torch import Tensor, nn

from parsecaps.models.pretrained import PretrainedModel, check_head
from parsecaps.nn.heads import Axes, Bottleneck, LinearConcepts
from parsecaps.types import Output

SMALL_IMAGE = 64  # pixels a side; up to this, five halvings would leave 2 x 2 positions, and networks halve less often
SIZE_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 224},
    "digits": {"image_size": 28},
    "tiny": {"image_size": 32, "num_concepts": 3},
}
NARROW_PRESETS = {**SIZE_PRESETS, "tiny": {**SIZE_PRESETS["tiny"], "width": 0.125}}
_WIDEST = 4.0


class FeatureModel(PretrainedModel):
    """Features, then a linear layer for the classes and one for the concepts.

    Concepts are presences alone, without capsules; with `head="bottleneck"` they decide, as in a concept bottleneck
    model. A model with heads of its own takes the `num_features` features of any of these, `without_heads`.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    AXES: ClassVar[Axes] = {"classes.weight": ("classes", ""), "classes.bias": ("classes",)}

    num_features: int

    @property
    def feature_map(self) -> nn.Module | None:
        """The layer that gives the last feature map, for Grad-CAM; None where that is the last convolution."""
        return None

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        check_head(config["head"], self.num_concepts)

    def add_heads(self, num_features: int) -> None:
        """Put the heads on the features, once the layers before them are there."""
        self.num_features = num_features
        self.concepts = (
            LinearConcepts(in_dim=num_features, num_concepts=self.num_concepts) if self.num_concepts else None
        )
        self.classes: nn.Linear | Bottleneck = (
            Bottleneck(num_concepts=self.num_concepts, num_classes=self.num_classes)
            if self.config["head"] == "bottleneck"
            else nn.Linear(num_features, self.num_classes)
        )

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

    @abstractmethod
    def last_map(self, image: Tensor) -> Tensor:
        """The last feature map: (B, in_channels, image_size, image_size) -> (B, map_channels, h, w)."""

    def features(self, image: Tensor) -> Tensor:
        """Its mean over the positions: (B, in_channels, image_size, image_size) -> (B, num_features)."""
        return self.last_map(image).mean((2, 3))

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        if reconstruct:
            raise ValueError(f"{type(self).__name__} has no decoder; call it without reconstruct")
        features = self.features(image)
        presence = None if self.concepts is None else self.concepts(features)
        if isinstance(self.classes, Bottleneck):
            logits, contributions = self.classes(presence)
            return Output(logits, contributions, presence=presence)
        return Output(self.classes(features), presence=presence)


def build_backbone(name: str, preset: str, *, in_channels: int, image_size: int) -> FeatureModel:
    """A named network of this kind, for a model that has heads of its own and takes off these."""
    from parsecaps.models import all_models  # which knows the models that call this

    known = {each: kind for each, kind in all_models().items() if issubclass(kind, FeatureModel)}
    if name not in known:
        raise ValueError(f"backbone is {name!r}; choose one of {', '.join(known)}")
    if preset not in known[name].presets:
        raise ValueError(f"backbone_preset is {preset!r}; choose one of {', '.join(known[name].presets)}")
    sizes = {"in_channels": in_channels, "image_size": image_size, "num_classes": 1, "num_concepts": 0}
    return known[name].from_preset(preset, **sizes)


def check_width(width: float) -> None:
    """Refuse a factor on the channels with which there is no network, or none that anyone could use."""
    if not 0 < width <= _WIDEST:
        raise ValueError(f"width is {width}; give 1 (as published), or another number above 0 and at most {_WIDEST:g}")


def scaled(channels: int, width: float) -> int:
    """A number of channels of a network that is narrower or wider than published.

    >>> scaled(64, 1.0), scaled(64, 0.25), scaled(2, 0.1)
    (64, 16, 1)
    """
    return max(1, round(channels * width))


def start_he(module: nn.Module) -> None:
    """Start convolutions and linear layers as He et al. (2015): a deep network without normalisations then learns."""
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
