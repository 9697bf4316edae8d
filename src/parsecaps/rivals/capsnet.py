"""CapsNet with dynamic routing, its form for brain tumours, and Aff-CapsNet without routing."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.capsules import CapsuleGrid, ConvPrimaryCaps
from parsecaps.nn.heads import length
from parsecaps.rivals.class_decoder import ClassDecoder
from parsecaps.rivals.class_routing import CLASS_ROUTINGS, ClassCapsules, ClassRoutingConfig, UnroutedCapsules
from parsecaps.types import Output

CAPSNET_PRESETS: dict[str, dict[str, Any]] = {
    "digits": {"image_size": 28},  # Sabour, Frosst and Hinton 2017
    "medical": {"image_size": 64, "features": 64},  # Afshar, Mohammadi and Plataniotis 2018
    "affine": {"image_size": 40, "routing": "none"},  # Gu and Tresp 2020
    "tiny": {"image_size": 32, "features": 16, "types": 4, "primary_dim": 4, "class_dim": 8, "decoder_sizes": (32,)},
}

_KERNEL = 9  # of both convolutions
_CHILDREN_PER_CLASS = 461  # at most in the first authors' own networks: 40 pixels and ten classes


class CapsNet(PretrainedModel):
    """A convolution, primary capsules, and a capsule for each class by routing (Sabour, Frosst and Hinton 2017).

    The score of a class is the length of its capsule. The `decoder` draws the image from the capsule of one class; no
    score comes from it. `routing="none"` is Aff-CapsNet: one matrix for each class, shared by all primary capsules, and
    no routing. A vote has a matrix of its own otherwise, so the weights grow with the area of the image: at 224 pixels
    there would be 138 million of them. Deviations: pixels are standardised, and weights start as PyTorch's do.
    Where more capsules vote for each class than in the first authors' networks, as with 64 pixels and three classes,
    their votes are scaled down; without it all classes are long from the start, and stay so.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits in [0, 1), class capsules and, where it was asked for, the picture of the longest

    >>> model = CapsNet.from_preset("digits", num_classes=10, decoder=False)
    >>> f"{sum(weight.numel() for weight in model.parameters()):,}"
    '6,804,224'
    """

    presets = CAPSNET_PRESETS
    names_concepts = False
    largest_image = 96
    losses: ClassVar[Mapping[str, float]] = {"margin": 1.0, "class_reconstruction": 0.392}

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
        routing: str = "dynamic",
        iterations: int = 3,
        decoder: bool = True,
        decoder_sizes: Sequence[int] = (512, 1024),
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config)
        known = ("none", *CLASS_ROUTINGS)
        if routing not in known:
            raise ValueError(f"routing is {routing!r}; choose one of {', '.join(known)}")
        self.stem = nn.Sequential(nn.Conv2d(in_channels, features, _KERNEL), nn.ReLU(inplace=True))
        self.stem.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.primary = ConvPrimaryCaps(
            in_channels=features, size=image_size - _KERNEL + 1, types=types, dim=primary_dim, kernel=_KERNEL
        )
        self.vote_scale = 1.0
        self.classes: ClassCapsules | UnroutedCapsules
        if routing == "none":
            self.classes = UnroutedCapsules(in_dim=primary_dim, classes=num_classes, dim=class_dim)
        else:
            self.vote_scale = min(1.0, _CHILDREN_PER_CLASS * num_classes / self.primary.capsules)
            wanted = ClassRoutingConfig(
                capsules=self.primary.capsules, classes=num_classes, dim=class_dim, iterations=iterations
            )
            self.classes = ClassCapsules(in_dim=primary_dim, routing=routing, config=wanted)
        self.decoder = (
            ClassDecoder(
                num_classes=num_classes,
                dim=class_dim,
                out_channels=in_channels,
                image_size=image_size,
                sizes=decoder_sizes,
            )
            if decoder
            else None
        )

    @property
    def class_children(self) -> tuple[CapsuleGrid, ...]:
        layers = (*self.stem, self.primary.convolution)
        return (CapsuleGrid.behind(layers, width=self.primary.width, types=self.primary.types),)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        primary = self.primary(self.stem(image.contiguous(memory_format=torch.channels_last)))
        capsules = self.classes(self.vote_scale * primary)
        scores = length(capsules)
        picture = self.decode(capsules, scores.argmax(1)) if reconstruct else None
        return Output(scores, class_capsules=capsules, reconstruction=picture)

    def decode(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        """The picture that the decoder makes of the capsule of one class.

        Shapes:
            - class_capsules: (B, num_classes, class_dim); index: (B,) int64
            - output: (B, in_channels, image_size, image_size), in [0, 1]
        """
        if self.decoder is None:
            raise ValueError("this CapsNet has no decoder; build it with decoder=True")
        picture: Tensor = self.decoder(class_capsules, index)
        return picture
