"""Networks with a map for each concept, and a class by how active the maps are: the CCNN and the coherent CNN."""

from collections.abc import Mapping
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.nn.heads import RATE, Axes, Bottleneck, ConceptReadout
from parsecaps.rivals.concept_models import ConceptModel
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
        - output: `Output` with logits, presences and, as `concept_features` (B, m, h, w), the maps

    >>> model = CCNN.from_preset("tiny", num_classes=2).eval()
    >>> model(torch.rand(1, 1, 32, 32)).concept_features.shape
    torch.Size([1, 3, 2, 2])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "semantic": 0.4, "counter": 0.4, "uniqueness": 0.4}
    uniqueness: ClassVar[Uniqueness] = "sigmoid"
    class_bias: ClassVar[bool] = False

    def build_layers(
        self, *, backbone: str = "ResNet34", backbone_preset: str = "medical", dropout: float = 0.5
    ) -> None:
        self.backbone = self.build_backbone(backbone, backbone_preset).up_to_map()
        m, channels = self.num_concepts, self.backbone.map_channels
        self.concepts = ConceptMaps(in_channels=channels, num_concepts=m, dropout=dropout)
        self.classes = Bottleneck(
            num_concepts=m, num_classes=self.num_classes, scale="activation", bias=self.class_bias
        )

    @property
    def feature_map(self) -> nn.Module:
        """The layer that gives the maps of the concepts, for Grad-CAM."""
        return self.concepts.conv

    @torch.no_grad()
    def start(self, labels: Tensor, concepts: Tensor) -> None:
        self.classes.weight.copy_(_START * usual_concepts(labels, concepts, self.num_classes))

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        maps, activation = self.concepts(self.backbone.last_map(image))
        logits, contributions = self.classes(activation)
        return Output(logits, contributions, presence=(RATE * activation).tanh(), concept_features=maps)


class CoherentCNN(CCNN):
    """The model of Patricio, Neves and Teixeira (2023): as `CCNN`, with a bias, another uniqueness loss, and coherence.

    The published ones are on ResNet-101, DenseNet-201 and SEResNeXt-26d, cut at a map of 14 x 14; here it is the last
    map of any network (deviation). The coherence loss needs masks of the lesions; its weight is that for ResNet-101 on
    PH2. Dice is of `tanh` of the maps, since it is made for numbers up to 1 (deviation).
    """

    losses: ClassVar[Mapping[str, float]] = {**CCNN.losses, "coherence": 0.6}
    uniqueness: ClassVar[Uniqueness] = "softmax"
    class_bias: ClassVar[bool] = True


class ConceptMaps(ConceptReadout):
    """A map of each concept, by a convolution of one pixel and a ReLU, and its mean: how active the concept is.

    Some of its places are left out of the mean in training (`dropout`).

    Shapes:
        - input: (B, in_channels, h, w)
        - output: maps (B, m, h, w), activation (B, m), both not negative
    """

    AXES: ClassVar[Axes] = {"conv.weight": ("concepts", "", "", ""), "conv.bias": ("concepts",)}

    def __init__(self, *, in_channels: int, num_concepts: int, dropout: float) -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_channels, num_concepts, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        maps = F.relu(self.conv(features))
        return maps, self.dropout(maps).mean((2, 3))


def usual_concepts(labels: Tensor, concepts: Tensor, num_classes: int) -> Tensor:
    """Which concepts are more usual in a class than in the mean of the classes: (num_classes, m), 1 or 0.

    Shapes:
        - labels: (N,), -1 = unknown; concepts: (N, m), NaN = unknown
    """
    own = (labels == torch.arange(num_classes, device=labels.device).unsqueeze(1)).double()  # (num_classes, N)
    count = own @ (~concepts.isnan()).double()
    shares = own @ concepts.double().nan_to_num() / count  # NaN where nothing is known
    return (shares > shares.nanmean(0)).float()
