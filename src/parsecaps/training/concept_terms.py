"""The terms that other concept models were published with."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from parsecaps.functional.concept_losses import concept_cross_entropy
from parsecaps.models import PretrainedModel
from parsecaps.nn.heads import MARGINS, Bottleneck
from parsecaps.training.terms import (
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


class Intervention(Classification):
    """Cross-entropy of the class that follows where every known concept is set right: a correction mends a diagnosis.

    For a bottleneck over presences (deviation from the paper, which has none). Joint training alone lets presences tell
    the classes more than their concepts do (leakage; Mahinpei et al. 2021); then a corrected concept may make the
    diagnosis worse. A concept set right has the presence that training aims at (Sec. 3.3.1), one that is not known that
    of the image. Only the head learns from it.
    """

    name = "intervention"
    _head: list[Bottleneck]

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        head = getattr(context.model, "classes", None)
        return isinstance(head, Bottleneck) and head.scale == "presence" and bool(context.weight(cls.name))

    @classmethod
    def build(cls, context: TermContext) -> Self:
        term = super().build(context)
        term._head = [context.model.classes]  # type: ignore[list-item]  # in a list: it does not own the weights
        return term

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.presence is not None
        presence, truth = output.presence.detach(), known_concepts(output.presence, batch)
        absent, present = MARGINS
        right = absent + (present - absent) * truth.nan_to_num()
        logits, _ = self._head[0](torch.where(truth.isnan(), presence, right))
        has_truth = ~truth.isnan().all(1)
        batch = batch._replace(label=batch.label.where(has_truth, -1))
        if batch.mixed is not None:
            batch = batch._replace(mixed=batch.mixed._replace(label=batch.mixed.label.where(has_truth, -1)))
        return super().forward(output._replace(logits=logits), batch)


class ConceptCrossEntropy(Term):
    """Binary cross-entropy of the concepts, over those that are known."""

    name = "concept_cross_entropy"
    concept_weights: Tensor | None

    def __init__(self, weight: float, concept_weights: Sequence[Sequence[float]] | None = None) -> None:
        super().__init__(weight)
        self.register_buffer("concept_weights", to_tensor(concept_weights))

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return bool(context.weight(cls.name))

    @classmethod
    def build(cls, context: TermContext) -> Self:
        weight = context.weight(cls.name)
        if not context.model.num_concepts:
            raise ValueError(f"training.{cls.name}_weight is {weight:g}, but the model has no concepts; set it to 0")
        return cls(weight, context.concept_weights)

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.presence is None:
            return nothing(output)
        given = output.concept_features
        logits = output.presence.logit(_LEAST) if given is None or given.dim() != 2 else given
        concepts = known_concepts(output.presence, batch)
        return sum_of(concept_cross_entropy(logits, concepts, self.concept_weights), described(concepts))
