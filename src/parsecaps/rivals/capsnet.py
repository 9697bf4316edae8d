"""CapsNet with dynamic routing, its form for brain tumours, and Aff-CapsNet without routing."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor, nn

from parsecaps.models.pretrained import Presets
from parsecaps.nn.capsules import CapsuleGrid, ConvPrimaryCaps
from parsecaps.rivals.class_capsules import (
    CLASS_ROUTINGS,
    TINY,
    ClassCapsuleModel,
    ClassCapsules,
    ClassRoutingConfig,
    UnroutedCapsules,
    channels_last,
)

_KERNEL = 9  # of both convolutions
_CHILDREN_PER_CLASS = 461  # at most in the first authors' own networks: 40 pixels and ten classes


class CapsNet(ClassCapsuleModel):
    """A convolution, primary capsules, and a capsule for each class by routing (Sabour, Frosst and Hinton 2017).

    The score of a class is the length of its capsule. `routing="none"` is Aff-CapsNet: one matrix for each class,
    shared by all primary capsules, and no routing. Otherwise each vote has its own matrix: at 224 pixels, 138 million
    weights. Deviations: pixels are standardised, and weights start as PyTorch's do. Where more capsules vote for each
    class than in the first authors' networks, their votes are scaled down; else all classes start long, and stay so.

    >>> model = CapsNet.from_preset("digits", num_classes=10, decoder=False)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '6,804,224'
    """

    presets: ClassVar[Presets] = {
        "digits": {"image_size": 28},  # Sabour, Frosst and Hinton 2017
        "medical": {"image_size": 64, "features": 64},  # Afshar, Mohammadi and Plataniotis 2018
        "affine": {"image_size": 40, "routing": "none"},  # Gu and Tresp 2020
        "tiny": {**TINY, "features": 16, "class_dim": 8},
    }
    image_size = 28
    largest_image = 96
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.392}

    primary: ConvPrimaryCaps

    def build_layers(
        self,
        *,
        features: int = 256,
        types: int = 32,
        primary_dim: int = 8,
        class_dim: int = 16,
        routing: str = "dynamic",
        iterations: int = 3,
        decoder: bool = True,
        decoder_sizes: Sequence[int] = (512, 1024),
    ) -> None:
        known = ("none", *CLASS_ROUTINGS)
        if routing not in known:
            raise ValueError(f"routing is {routing!r}; choose one of {', '.join(known)}")
        self.stem = channels_last(nn.Conv2d(self.in_channels, features, _KERNEL), nn.ReLU(inplace=True))
        self.primary = ConvPrimaryCaps(
            in_channels=features, size=self.image_size - _KERNEL + 1, types=types, dim=primary_dim, kernel=_KERNEL
        )
        children, parents = self.primary.capsules, self.num_classes
        self.vote_scale = 1.0 if routing == "none" else min(1.0, _CHILDREN_PER_CLASS * parents / children)
        self.classes: ClassCapsules | UnroutedCapsules
        if routing == "none":
            self.classes = UnroutedCapsules(in_dim=primary_dim, classes=parents, dim=class_dim)
        else:
            wanted = ClassRoutingConfig(capsules=children, classes=parents, dim=class_dim, iterations=iterations)
            self.classes = ClassCapsules(in_dim=primary_dim, routing=routing, config=wanted)
        self.add_decoder(decoder, dim=class_dim, sizes=decoder_sizes)

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        return (self.primary.grid(self.stem),)

    def capsules(self, image: Tensor) -> Tensor:
        return self.classes(self.vote_scale * self.primary(self.stem(image)))  # type: ignore[no-any-return]
