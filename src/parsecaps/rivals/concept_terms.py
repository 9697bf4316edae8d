"""The terms that other concept models were published with."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from parsecaps.functional.concept_losses import concept_cross_entropy
from parsecaps.models import PretrainedModel
from parsecaps.training.losses import (
    Classification,
    Loss,
    Term,
    TermContext,
    described,
    known_concepts,
    nothing,
    sum_of,
    to_tensor,
)
from parsecaps.types import Batch, Output

_LEAST = 1e-6  # of a presence whose logit is not given


class IntervenedClassification(Classification):
    """Cross-entropy of a model that learns to follow corrected concepts; in validation, of its own answers.

    In training each concept is set to its truth, where that is known, with the model's `intervention_probability`
    before the class is decided: one draw for all images of a batch (RandInt of Espinosa Zarlenga et al. 2022). At a
    probability of 1 the classes are learned from true concepts alone.
    """

    _model: list[PretrainedModel]

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return bool(context.model.intervention_probability)

    @classmethod
    def build(cls, context: TermContext) -> Self:
        term = super().build(context)
        term._model = [context.model]  # in a list: it does not own the weights
        return term

    def forward(self, output: Output, batch: Batch) -> Loss:
        if self.training and output.presence is not None:
            output = output._replace(logits=self._intervened(output, output.presence, batch))
        return super().forward(output, batch)

    def _intervened(self, output: Output, presence: Tensor, batch: Batch) -> Tensor:
        model, truth = self._model[0], known_concepts(presence, batch)
        drawn = torch.rand(presence.shape[1], device=presence.device) < model.intervention_probability
        return model.decide(output, torch.where(drawn & ~truth.isnan(), truth.nan_to_num(), presence))


class ConceptCrossEntropy(Term):
    """Binary cross-entropy of the concepts, over those that are known."""

    name = "concept_cross_entropy"
    concept_weights: Tensor | None

    def __init__(self, weight: float, concept_weights: Sequence[Sequence[float]] | None = None) -> None:
        super().__init__(weight)
        self.register_buffer("concept_weights", to_tensor(concept_weights))

    @classmethod
    def build(cls, context: TermContext) -> Self:
        if not context.model.num_concepts:
            given = f"training.losses.{cls.name} is {context.weight(cls.name):g}"
            raise ValueError(f"{given}, but the model has no concepts; set it to 0")
        return cls(concept_weights=context.concept_weights, **context.arguments(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.presence is None:
            return nothing(output)
        given = output.concept_features
        logits = output.presence.logit(_LEAST) if given is None or given.dim() != 2 else given
        concepts = known_concepts(output.presence, batch)
        return sum_of(concept_cross_entropy(logits, concepts, self.concept_weights), described(concepts))
