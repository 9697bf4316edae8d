"""The terms of models with a map for each concept (`CCNN`, `CoherentCNN`)."""

from abc import abstractmethod
from typing import Self, cast

from torch import Tensor
from torch.nn import functional as F

from parsecaps.functional.concept_losses import (
    coherence_loss,
    counter_loss,
    likeness,
    masked_concepts,
    semantic_loss,
    uniqueness_loss,
)
from parsecaps.nn.heads import PhraseEmbedding
from parsecaps.rivals.ccnn import CCNN
from parsecaps.rivals.ccnn import Uniqueness as Kind
from parsecaps.training.losses import Loss, Term, TermContext, described, known_concepts, nothing, sum_of
from parsecaps.types import Batch, Output

GRID = 14  # positions along a side on which maps are compared with phrases, as published
_JOINT, _PHRASE = 24, 50  # dimensions, as published


class MapTerm(Term):
    """A loss of the maps of concepts; a model without any is refused."""

    @classmethod
    def model_of(cls, context: TermContext) -> CCNN:
        """The model, which has maps."""
        if not isinstance(context.model, CCNN):
            kind = type(context.model).__name__
            given = f"training.losses.{cls.name} is {context.weight(cls.name):g}"
            raise ValueError(f"{given}, but {kind} has no map for each concept; set it to 0, or model.kind to CCNN")
        return context.model

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

    def __init__(self, weight: float, phrases: PhraseEmbedding) -> None:
        super().__init__(weight)
        self.phrases = phrases

    @classmethod
    def build(cls, context: TermContext) -> Self:
        model = cls.model_of(context)
        if "phrases" not in context.shared:
            context.shared["phrases"] = PhraseEmbedding(
                num_concepts=model.num_concepts,
                concept_dim=GRID**2,
                joint_dim=_JOINT,
                phrase_dim=_PHRASE,
                bias=False,
            )
        phrases = cast(PhraseEmbedding, context.shared["phrases"])
        return cls(phrases=phrases, **context.arguments(cls.name))

    def likeness(self, maps: Tensor) -> Tensor:
        """Of maps and phrases: (B, m, h, w) -> (B, m, m)."""
        return likeness(*self.phrases(F.adaptive_avg_pool2d(maps, GRID).flatten(2)))


class Semantic(PhraseTerm):
    """The map of a concept is like the phrase of that concept, and of no other."""

    name = "semantic"

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        return sum_of(semantic_loss(self.likeness(maps), concepts), described(concepts))


class Counter(PhraseTerm):
    """The map of a concept is like its phrase where the concept is there, and less so where it is not."""

    name = "counter"

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        return sum_of(counter_loss(self.likeness(maps), concepts), described(concepts))


class Uniqueness(MapTerm):
    """The concepts of an image are more active than the others, in the way that the model was published with."""

    name = "uniqueness"

    def __init__(self, weight: float, kind: Kind) -> None:
        super().__init__(weight)
        self.kind = kind

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(kind=cls.model_of(context).uniqueness, **context.arguments(cls.name))

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        return sum_of(uniqueness_loss(maps.mean((2, 3)), concepts, self.kind), described(concepts))


class Coherence(MapTerm):
    """The maps of concepts lie where the lesion is, in images whose mask is known."""

    name = "coherence"
    needs = frozenset({"masks"})

    @classmethod
    def build(cls, context: TermContext) -> Self:
        cls.model_of(context)
        return super().build(context)

    def of_maps(self, maps: Tensor, concepts: Tensor, batch: Batch) -> Loss:
        if batch.mask is None:
            return Loss(maps.sum() * 0, maps.new_zeros(()))
        mask = F.adaptive_avg_pool2d(batch.mask, (maps.shape[2], maps.shape[3]))
        count = masked_concepts(mask, concepts).any(1).sum().float()
        return sum_of(coherence_loss(maps.tanh(), mask, concepts), count)
