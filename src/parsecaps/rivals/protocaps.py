"""Proto-Caps: a capsule for each attribute, and prototypes of the grades of each."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.capsules import CapsuleGrid, ConvPrimaryCaps
from parsecaps.nn.heads import AttributeHead, Axes
from parsecaps.rivals.class_routing import ClassRoutingConfig
from parsecaps.rivals.prototypes import Prototypes
from parsecaps.rivals.sigmoid_routing import AttributeCapsules
from parsecaps.types import Output

PROTOCAPS_PRESETS: dict[str, dict[str, Any]] = {
    "medical": {"image_size": 32},
    "digits": {"image_size": 28},
    "tiny": {
        "image_size": 32,
        "num_concepts": 3,
        "features": 16,
        "types": 4,
        "primary_dim": 4,
        "concept_dim": 8,
        "decoder_sizes": (32,),
    },
}

_KERNEL = 9  # of both convolutions
_MOST_GRADES, _MOST_PROTOTYPES = 100, 100


class AttributeClasses(nn.Module):
    """Logits as a linear function of all attribute capsules.

    Shapes:
        - input: (B, m, dim)
        - output: (B, num_classes)
    """

    AXES: ClassVar[Axes] = {"weight": ("classes", "concepts", ""), "bias": ("classes",)}

    def __init__(self, *, num_classes: int, num_concepts: int, dim: int) -> None:
        super().__init__()
        scale = 1 / math.sqrt(num_concepts * dim)
        self.weight = nn.Parameter(torch.empty(num_classes, num_concepts, dim).uniform_(-scale, scale))
        self.bias = nn.Parameter(torch.empty(num_classes).uniform_(-scale, scale))

    def forward(self, capsules: Tensor) -> Tensor:
        return capsules.flatten(1) @ self.weight.flatten(1).T + self.bias


class ProtoCaps(PretrainedModel):
    """Capsules of attributes decide, and prototypes show what each looks like (Gallee, Beer and Goetz 2023).

    A convolution, primary capsules, and one capsule for each concept, routed without competition between them. Each
    has its own head for how present it is; all of them together give the classes and the decoder's picture. The
    prototypes take no part in the answer: `concept_features` are the distances of each capsule to them, `prototypes`
    has the case that each was taken from. `grades` says how many each concept has, evenly from 0 to 1; without it, two,
    absent and present, which is what data of this package have. Capsules are as long as they like below 1; presence is
    the head's number.

    Deviations: a capsule is one of neighbouring channels at one position (the authors' code mixes positions up); the
    classes learn by cross-entropy, which for one true class is the authors' Kullback-Leibler divergence; the decoder
    learns the whole image, and not that of the masked nodule; prototypes learn at the rate of the other weights.
    The authors' code puts each prototype back where it was when it should take the nearest training capsule's place;
    here it takes it.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits, presence, distances (B, m, most grades, prototypes) and, where it was asked for,
          a picture

    >>> grades = (5, 4, 6, 5, 5, 5, 5, 5)
    >>> model = ProtoCaps.from_preset("medical", num_classes=5, num_concepts=8, grades=grades)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '9,069,837'
    """

    presets = PROTOCAPS_PRESETS
    largest_image = 64
    losses: ClassVar[Mapping[str, float]] = {
        "classification": 1.0,
        "attribute": 1.0,
        "image_reconstruction": 0.512,
        "prototype": 0.125,
    }

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int,
        in_channels: int = 1,
        image_size: int = 32,
        features: int = 256,
        types: int = 32,
        primary_dim: int = 8,
        concept_dim: int = 16,
        iterations: int = 3,
        grades: Sequence[int] | None = None,
        prototypes: int = 2,
        decoder_sizes: Sequence[int] = (512, 1024),
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        if not num_concepts:
            raise ValueError("ProtoCaps decides by concepts, and num_concepts is 0; take data that name concepts")
        self.grades = (2,) * num_concepts if grades is None else tuple(grades)
        if len(self.grades) != num_concepts or not all(2 <= each <= _MOST_GRADES for each in self.grades):
            wanted = f"one number from 2 to {_MOST_GRADES} for each of the {num_concepts} concepts"
            raise ValueError(f"grades are {', '.join(map(str, self.grades))}; give {wanted}, or leave them out")
        if not 1 <= prototypes <= _MOST_PROTOTYPES:
            raise ValueError(f"prototypes is {prototypes}; give from 1 to {_MOST_PROTOTYPES}, for each grade")
        self.stem = nn.Sequential(nn.Conv2d(in_channels, features, _KERNEL), nn.ReLU(inplace=True))
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.primary = ConvPrimaryCaps(
            in_channels=features, size=image_size - _KERNEL + 1, types=types, dim=primary_dim, kernel=_KERNEL
        )
        routing = ClassRoutingConfig(
            capsules=self.primary.capsules, classes=num_concepts, dim=concept_dim, iterations=iterations
        )
        self.concepts = AttributeCapsules(in_dim=primary_dim, config=routing)
        self.presence = AttributeHead(num_concepts=num_concepts, dim=concept_dim)
        self.classes = AttributeClasses(num_classes=num_classes, num_concepts=num_concepts, dim=concept_dim)
        self.prototypes = Prototypes(grades=self.grades, per_grade=prototypes, dim=concept_dim)
        sizes = (num_concepts * concept_dim, *decoder_sizes)
        hidden = [part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
        shape = (in_channels, image_size, image_size)
        pixels = nn.Linear(sizes[-1], math.prod(shape))
        self.decoder = nn.Sequential(nn.Flatten(), *hidden, pixels, nn.Sigmoid(), nn.Unflatten(1, shape))

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        layers = (*self.stem, self.primary.convolution)
        return (CapsuleGrid.behind(layers, width=self.primary.width, types=self.primary.types),)

    def attribute_capsules(self, image: Tensor) -> Tensor:
        """The capsules (B, m, concept_dim) of images in [0, 1]: what prototypes are compared with."""
        return self._capsules(self.standardise(image))

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        capsules = self._capsules(image)
        return Output(
            self.classes(capsules),
            presence=self.presence(capsules),
            reconstruction=self.decoder(capsules) if reconstruct else None,
            concept_features=self.prototypes(capsules),
        )

    def _capsules(self, image: Tensor) -> Tensor:
        features = self.stem(image.contiguous(memory_format=torch.channels_last))
        return self.concepts(self.primary(features))  # type: ignore[no-any-return]
