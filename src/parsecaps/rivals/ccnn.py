"""The comprehensible CNN: a map for each concept, and a class by how active the maps are."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from parsecaps.nn.heads import RATE, Bottleneck
from parsecaps.rivals.concept_heads import ConceptMaps
from parsecaps.rivals.concept_model import ConceptModel
from parsecaps.types import Output

Uniqueness = Literal["sigmoid", "softmax"]

_START = 0.1  # of the weight of a concept in a class that has it


class CCNN(ConceptModel):
    """The comprehensible CNN (Wickramanayake et al. 2021) on the last feature map of any network.

    The published one has the convolutions of VGG-16 (`backbone=ConvVGG16`). A class is a sum over the mean activations
    of the concepts, without a bias; a presence is `tanh` of an activation, scaled such that what the authors of
    `CoherentCNN` count as present, tanh above 0.7, is a presence above 0.5. What the classes start from are the
    concepts that are more usual in a class than in others (`start`; deviation: the published one is told which
    concepts a class has).

    Deviations: one stage of training instead of three, so without the last, which takes weights off the classes that do
    not have a concept. The losses look at all maps on a grid of 14 x 14, whatever theirs is.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output` with logits, presences and, as `concept_features` (B, m, h, w), the maps

    >>> model = CCNN.from_preset("tiny", num_classes=2).eval()
    >>> model(torch.rand(1, 1, 32, 32)).concept_features.shape
    torch.Size([1, 3, 2, 2])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "semantic": 0.4, "counter": 0.4, "uniqueness": 0.4}
    uniqueness: ClassVar[Uniqueness] = "sigmoid"
    class_bias: ClassVar[bool] = False

    def __init__(
        self,
        *,
        num_classes: int,
        num_concepts: int = 0,
        in_channels: int = 1,
        image_size: int = 224,
        backbone: str = "ResNet34",
        backbone_preset: str = "medical",
        dropout: float = 0.5,
    ) -> None:
        config: dict[str, Any] = {n: value for n, value in locals().items() if n not in ("self", "__class__")}
        super().__init__(config, takes_map=True)
        self.concepts = ConceptMaps(in_channels=self.backbone.map_channels, num_concepts=num_concepts, dropout=dropout)
        self.classes = Bottleneck(
            num_concepts=num_concepts, num_classes=num_classes, scale="activation", bias=self.class_bias
        )

    @property
    def feature_map(self) -> nn.Module:
        """The layer that gives the maps of the concepts, for Grad-CAM."""
        return self.concepts.conv

    @torch.no_grad()
    def start(self, labels: Tensor, concepts: Tensor) -> None:
        self.classes.weight.copy_(_START * usual_concepts(labels, concepts, self.num_classes))

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        self.refuse_reconstruction(reconstruct)
        maps, activation = self.concepts(self.backbone.last_map(image))
        logits, contributions = self.classes(activation)
        return Output(logits, contributions, presence=(RATE * activation).tanh(), concept_features=maps)


def usual_concepts(labels: Tensor, concepts: Tensor, num_classes: int) -> Tensor:
    """Which concepts are more usual in a class than in the mean of the classes: (num_classes, m), 1 or 0.

    Shapes:
        - labels: (N,), -1 = unknown; concepts: (N, m), NaN = unknown
    """
    own = (labels == torch.arange(num_classes, device=labels.device).unsqueeze(1)).double()  # (num_classes, N)
    count = own @ (~concepts.isnan()).double()
    shares = own @ concepts.double().nan_to_num() / count  # NaN where nothing is known
    return (shares > shares.nanmean(0)).float()
