"""Networks that make one vector of features of an image: the baselines share what follows it."""

from abc import abstractmethod
from typing import Any, ClassVar

from torch import Tensor, nn

from parsecaps.models.pretrained import PretrainedModel, check_head
from parsecaps.nn.heads import Axes, Bottleneck, LinearConcepts
from parsecaps.types import Output


class FeatureModel(PretrainedModel):
    """Features, then a linear layer for the classes and one for the concepts.

    Concepts are presences alone, without capsules; with `head="bottleneck"` they decide, as in a concept bottleneck
    model.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits and, where there are concepts, presences
    """

    AXES: ClassVar[Axes] = {"classes.weight": ("classes", ""), "classes.bias": ("classes",)}

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        check_head(config["head"], self.num_concepts)

    def add_heads(self, num_features: int) -> None:
        """Put the heads on the features, once the layers before them are there."""
        self.concepts = (
            LinearConcepts(in_dim=num_features, num_concepts=self.num_concepts) if self.num_concepts else None
        )
        self.classes: nn.Linear | Bottleneck = (
            Bottleneck(num_concepts=self.num_concepts, num_classes=self.num_classes)
            if self.config["head"] == "bottleneck"
            else nn.Linear(num_features, self.num_classes)
        )

    @abstractmethod
    def features(self, image: Tensor) -> Tensor:
        """(B, in_channels, image_size, image_size) -> (B, num_features)."""

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        if reconstruct:
            raise ValueError(f"{type(self).__name__} has no decoder; call it without reconstruct")
        features = self.features(image)
        presence = None if self.concepts is None else self.concepts(features)
        if isinstance(self.classes, Bottleneck):
            logits, contributions = self.classes(presence)
            return Output(logits, contributions, presence=presence)
        return Output(self.classes(features), presence=presence)
