"""Networks with a map for each concept, and a class by how active the maps are: the CCNN and the coherent CNN."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal, Self, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional.concept_losses import (
    coherence_loss,
    counter_loss,
    likeness,
    masked_concepts,
    semantic_loss,
    uniqueness_loss,
)
from parsecaps.nn.capsules import Axes
from parsecaps.nn.heads import RATE, Bottleneck, ConceptReadout, PhraseEmbedding
from parsecaps.rivals.concept_models import ConceptModel
from parsecaps.training.terms import Loss, Term, TermContext, described, known_concepts, nothing, sum_of
from parsecaps.types import Batch, Output

GRID = 14  # positions along a side on which maps are compared with phrases, as published
_JOINT, _PHRASE = 24, 50  # dimensions, as published
UniquenessKind = Literal["sigmoid", "softmax"]

_START = 0.1  # of the weight of a concept in a class that has it


class CCNN(ConceptModel):
    """The comprehensible CNN (Wickramanayake et al. 2021) on the last feature map of any network.

    The published one has the convolutions of VGG-16 (`backbone=ConvVGG16`). A class is a sum over the mean activations
    of the concepts, without a bias; a presence is `tanh` of an activation, scaled so that 0.5 is the authors'
    threshold, a tanh of 0.7.

    Deviations: the classes start from the concepts that are more usual in a class than in others (`start`), not from
    given ones; one stage of training instead of three; the losses look at all maps on a grid of 14 x 14.

    Shapes:
        - output: `Output` with logits, presences and, as `concept_features` (B, m, h, w), the maps

    >>> model = CCNN.from_preset("tiny", num_classes=2).eval()
    >>> model(torch.rand(1, 1, 32, 32)).concept_features.shape
    torch.Size([1, 3, 2, 2])
    """

    losses: ClassVar[Mapping[str, float]] = {"classification": 1.0, "semantic": 0.4, "counter": 0.4, "uniqueness": 0.4}
    uniqueness: ClassVar[UniquenessKind] = "sigmoid"
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
        super().start(labels, concepts)
        self.classes.weight.copy_(_START * usual_concepts(labels, concepts, self.num_classes))

    def classify(self, image: Tensor, reconstruct: bool) -> Output:
        maps, activation = self.concepts(self.backbone.last_map(image))
        logits, contributions = self.classes(activation)
        return Output(logits, contributions, presence=(RATE * activation).tanh(), concept_features=maps)


class CoherentCNN(CCNN):
    """The model of Patricio, Neves and Teixeira (2023): as `CCNN`, with a bias, another uniqueness loss, and coherence.

    The published ones are on ResNet-101, DenseNet-201 and SEResNeXt-26d, cut at a map of 14 x 14; here it is the last
    map of any network (deviation). The coherence loss needs masks of the lesions; its weight is that for ResNet-101 on
    PH2. Dice is of `tanh` of the maps (deviation).
    """

    losses: ClassVar[Mapping[str, float]] = {**CCNN.losses, "coherence": 0.6}
    uniqueness: ClassVar[UniquenessKind] = "softmax"
    class_bias: ClassVar[bool] = True


class ConceptMaps(ConceptReadout):
    """A map of each concept, by a convolution of one pixel and a ReLU, and its mean, with `dropout` of places.

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
    """Whether a concept (N, m) is more usual in a class (N,) than in the mean of all: (num_classes, m), 1 or 0."""
    own = (labels == torch.arange(num_classes, device=labels.device).unsqueeze(1)).double()  # (num_classes, N)
    count = own @ (~concepts.isnan()).double()
    shares = own @ concepts.double().nan_to_num() / count  # NaN where nothing is known
    return (shares > shares.nanmean(0)).float()


class MapTerm(Term):
    """A loss of the maps of concepts; a model without any is refused."""

    @classmethod
    def build(cls, context: TermContext) -> Self:
        if not isinstance(context.model, CCNN):
            kind = type(context.model).__name__
            given = f"training.losses.{cls.name} is {context.weight(cls.name):g}"
            raise ValueError(f"{given}, but {kind} has no map for each concept; set it to 0, or model.kind to CCNN")
        return super().build(context)

    def forward(self, output: Output, batch: Batch) -> Loss:
        maps = output.concept_features
        if maps is None or maps.dim() != 4 or output.presence is None:
            return nothing(output)
        return self.of_maps(maps, known_concepts(output.presence, batch), batch)

    @abstractmethod
    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        """The loss of maps (B, m, h, w), of which concepts (B, m) are known."""


class PhraseTerm(MapTerm):
    """A loss of how like the maps are to the phrases that name their concepts, in a joint space that such terms share.

    The phrases are learned, since no words come with the concepts (deviation: the published ones are means of GloVe).
    """

    loss: ClassVar[Any]  # a function of the likeness (B, m, m), and the concepts (B, m)
    phrases: PhraseEmbedding

    @classmethod
    def build(cls, context: TermContext) -> Self:
        term, m = super().build(context), context.model.num_concepts
        if "phrases" not in context.shared:
            context.shared["phrases"] = PhraseEmbedding(
                num_concepts=m, concept_dim=GRID**2, joint_dim=_JOINT, phrase_dim=_PHRASE, bias=False
            )
        term.phrases = cast(PhraseEmbedding, context.shared["phrases"])
        return term

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        alike = likeness(*self.phrases(F.adaptive_avg_pool2d(maps, GRID).flatten(2)))
        return sum_of(type(self).loss(alike, concepts), described(concepts))


class Semantic(PhraseTerm):
    """The map of a concept is like the phrase of that concept, and of no other."""

    name = "semantic"
    loss = staticmethod(semantic_loss)


class Counter(PhraseTerm):
    """The map of a concept is like its phrase where the concept is there, and less so where it is not."""

    name = "counter"
    loss = staticmethod(counter_loss)


class Uniqueness(MapTerm):
    """The concepts of an image are more active than the others, in the way that the model was published with."""

    name = "uniqueness"

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        (model,) = cast(Sequence[CCNN], self.models)
        return sum_of(uniqueness_loss(maps.mean((2, 3)), concepts, model.uniqueness), described(concepts))


class Coherence(MapTerm):
    """The maps of concepts lie where the lesion is, in images whose mask is known."""

    name = "coherence"
    needs = frozenset({"masks"})

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        if batch.mask is None:
            return Loss(maps.sum() * 0, maps.new_zeros(()))
        mask = F.adaptive_avg_pool2d(batch.mask, (maps.shape[2], maps.shape[3]))
        count = masked_concepts(mask, concepts).any(1).sum().float()
        return sum_of(coherence_loss(maps.tanh(), mask, concepts), count)
