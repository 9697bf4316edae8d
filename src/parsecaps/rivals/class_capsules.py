"""Networks that end in a capsule for each class: what follows the capsules is the same for all of them."""

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.heads import length
from parsecaps.rivals.class_decoder import ClassDecoder
from parsecaps.types import Output

LARGEST_DECODED = 128  # pixels: a decoder has a row of weights for each


class ClassCapsuleModel(PretrainedModel):
    """A score for each class from the length of its capsule, and a decoder that draws the image from one capsule.

    Concepts have no place in it. The `decoder` of a setting may be None: there is one up to 128 pixels.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with scores as logits, class capsules and, where it was asked for, the picture of the longest
    """

    names_concepts: ClassVar[bool] = False

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.decoder: ClassDecoder | None = None

    def add_decoder(self, *, dim: int, **sizes: Any) -> None:
        """Build the decoder of class capsules of `dim`, unless the configuration says that there is none."""
        wanted = self.config["decoder"]
        if self.image_size <= LARGEST_DECODED if wanted is None else wanted:
            self.decoder = ClassDecoder(
                num_classes=self.num_classes,
                dim=dim,
                out_channels=self.in_channels,
                image_size=self.image_size,
                **sizes,
            )

    @abstractmethod
    def capsules(self, image: Tensor) -> Tensor:
        """The class capsules (B, num_classes, class_dim) of a standardised image, channels last in memory."""

    def scores(self, capsules: Tensor) -> Tensor:
        """(B, num_classes, class_dim) -> (B, num_classes)."""
        return length(capsules)

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        capsules = self.capsules(image.contiguous(memory_format=torch.channels_last))
        scores = self.scores(capsules)
        picture = self.decode(capsules, scores.argmax(1)) if reconstruct else None
        return Output(scores, class_capsules=capsules, reconstruction=picture)

    def decode(self, class_capsules: Tensor, index: Tensor) -> Tensor:
        """The picture that the decoder makes of the capsule of one class.

        Shapes:
            - class_capsules: (B, num_classes, class_dim); index: (B,) int64
            - output: (B, in_channels, image_size, image_size), in [0, 1]
        """
        if self.decoder is None:
            raise ValueError(f"this {type(self).__name__} has no decoder; build it with decoder=True")
        picture: Tensor = self.decoder(class_capsules, index)
        return picture
