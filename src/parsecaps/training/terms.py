"""The terms of the training objective: the four losses of Sec. 3.3 and two of our own, each a sum over images.

A term says what its loss sums to over the images that count in it, and how many these are. Everything else (the total,
several processes, history, logs, checkpoints) loops over the terms by name. To add a loss, write a `Term`, put it into
`TERMS` (in `training.objective`), and give it a setting.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import torch
from torch import Tensor, nn

from parsecaps.config import TrainingSection, number
from parsecaps.data.batches import Batches
from parsecaps.functional import (
    class_loss,
    consistency_loss,
    diversity_loss,
    presentation_loss,
    reconstruction_loss,
    triplet_loss,
)
from parsecaps.functional.losses import class_weight
from parsecaps.models import PretrainedModel
from parsecaps.nn.heads import PhraseEmbedding
from parsecaps.types import Batch, Output


class Loss(NamedTuple):
    """A loss summed over the images that count in it, and how many these are, by their weights; both of shape ()."""

    sum: Tensor
    images: Tensor

    @property
    def mean(self) -> Tensor:
        """0 where no image counts."""
        return self.sum / torch.where(self.images > 0, self.images, 1)


@dataclass(frozen=True)
class TermContext:
    """What terms are built from: the settings, the model, and the weights of rare classes and concepts if wanted.

    `class_sets` are the numbers of the data sets that the classes belong to, where there are several. `shared` are
    parts that several terms have in common, made by the first that wants them.
    """

    training: TrainingSection
    model: PretrainedModel
    class_weights: Sequence[float] | None = None
    concept_weights: Sequence[Sequence[float]] | None = None
    class_sets: Sequence[int] | None = None
    shared: dict[str, nn.Module] = field(default_factory=dict)

    def weight(self, name: str) -> float:
        """The weight of a term: as it is set, or as the model was published with."""
        return loss_weight(self.training, type(self.model), name)


def loss_weight(training: TrainingSection, model: type[PretrainedModel], name: str) -> float:
    """The weight of a term in training a kind of model: as it is set, or as the model was published with."""
    given = getattr(training, f"{name}_weight")
    return model.losses.get(name, 0.0) if given == "auto" else float(given)


class Term(nn.Module, ABC):
    """One loss of the objective, with its name and its weight in the total; it may have parameters of its own.

    Shapes:
        - input: an `Output` and its `Batch`
        - output: `Loss`
    """

    name: ClassVar[str]

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        if not 0 <= weight < math.inf:
            raise ValueError(f"{self.name}_weight is {weight}; give 0 (off) or a positive number")
        self.weight = weight

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        """Whether a training has this term at all."""
        return True

    @classmethod
    @abstractmethod
    def build(cls, context: TermContext) -> Self:
        """The term as the settings want it."""

    @abstractmethod
    def forward(self, output: Output, batch: Batch) -> Loss: ...

    def after_epoch(self, model: PretrainedModel, batches: Batches, epoch: int) -> None:
        """What a term does to the model after an epoch, the first being 0, before it is validated and saved.

        In every process, with the same result. What has to be known later is kept in buffers, so that a run can go on.
        """

    def after_training(self, model: PretrainedModel, batches: Batches) -> None:
        """What a term does to the model that is kept, in the first process alone."""


class Classification(Term):
    """Cross-entropy over the images whose class is known, each counting by the weight of its class (Eq. 3.3)."""

    name = "classification"
    class_weights: Tensor | None
    class_sets: Tensor | None

    def __init__(
        self,
        class_weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        class_sets: Sequence[int] | None = None,
        weight: float = 1.0,
    ) -> None:
        super().__init__(weight)
        for i, weight in enumerate(class_weights or ()):
            if not 0 <= weight < math.inf:
                raise ValueError(f"class_weights[{i}] is {weight}; give 0 (off) or a positive number")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give 0 (off) or a number below 1")
        if label_smoothing and class_sets is not None:
            raise ValueError(f"label_smoothing is {label_smoothing}, which several data sets cannot have; set it to 0")
        self.label_smoothing = label_smoothing
        self.register_buffer("class_weights", to_tensor(class_weights))
        sets = None if class_sets is None else torch.tensor(class_sets)
        self.register_buffer("class_sets", sets, persistent=False)

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return not context.model.intervention_probability

    @classmethod
    def build(cls, context: TermContext) -> Self:
        smoothing, weight = context.training.label_smoothing, context.weight(cls.name)
        return cls(context.class_weights, smoothing, context.class_sets, weight)

    def forward(self, output: Output, batch: Batch) -> Loss:
        weights, num_classes = self.class_weights, output.logits.shape[-1]
        if weights is not None and len(weights) != num_classes:
            given = f"{len(weights)} class_weights for {num_classes} classes"
            raise ValueError(f"{given}; give {num_classes}, one per class")
        mixed = mixture(batch)
        mean = class_loss(output.logits, batch.label, weights, self.label_smoothing, sets=self.class_sets, **mixed)
        return sum_of(mean, class_weight(batch.label, weights, **mixed))


class Presentation(Term):
    """Concept capsules are long where their concept is present and short where it is absent (Eq. 3.1)."""

    name = "presentation"
    concept_weights: Tensor | None

    def __init__(self, weight: float, concept_weights: Sequence[Sequence[float]] | None = None) -> None:
        super().__init__(weight)
        self.register_buffer("concept_weights", to_tensor(concept_weights))

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(context.weight(cls.name), context.concept_weights)

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.presence is None:
            return nothing(output)
        concepts = known_concepts(output.presence, batch)
        return sum_of(presentation_loss(output.presence, concepts, weights=self.concept_weights), described(concepts))


class Triplet(Term):
    """The phrase of a concept lies nearer to its own capsule than to others (Eq. 3.2).

    The phrases are learned unless `phrase_vectors` (num_concepts, any) are given. A model without concept capsules
    (`concept_dim` of None) has no such loss.
    """

    name = "triplet"

    def __init__(
        self,
        weight: float,
        *,
        num_concepts: int = 0,
        concept_dim: int | None = None,
        phrase_vectors: Tensor | None = None,
    ) -> None:
        super().__init__(weight)
        if num_concepts < 0:
            raise ValueError(f"num_concepts is {num_concepts}; give 0 (no concepts) or more")
        if phrase_vectors is not None and not num_concepts:
            raise ValueError("phrase_vectors with num_concepts=0 name nothing; give num_concepts as well")
        self.shape = (num_concepts, concept_dim)
        self.phrases = (
            PhraseEmbedding(num_concepts=num_concepts, concept_dim=concept_dim, phrase_vectors=phrase_vectors)
            if num_concepts and concept_dim is not None
            else None
        )

    @classmethod
    def build(cls, context: TermContext) -> Self:
        model = context.model
        return cls(
            context.weight(cls.name),
            num_concepts=model.num_concepts,
            concept_dim=model.config["concept_dim"] if model.has_capsules else None,
        )

    def forward(self, output: Output, batch: Batch) -> Loss:
        capsules = output.concept_capsules
        if capsules is None:
            return nothing(output)
        if tuple(capsules.shape[1:]) != self.shape:
            m, dim = capsules.shape[1:]
            given = f"{m} concept capsules of dimension {dim}, not {self.shape[0]} of {self.shape[1]}"
            raise ValueError(f"{given}; build the term with num_concepts={m}, concept_dim={dim}")
        assert self.phrases is not None
        concepts = known_concepts(capsules[:, :, 0], batch)
        embedded, phrases = self.phrases(capsules)
        return sum_of(triplet_loss(embedded, phrases, concepts), described(concepts))


class Reconstruction(Term):
    """Squared error of the decoder's picture, over the images without a known concept (Sec. 3.3.2)."""

    name = "reconstruction"

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(context.weight(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.reconstruction is None or output.presence is None:
            return nothing(output)
        undescribed = known_concepts(output.presence, batch).isnan().all(1)
        return sum_of(reconstruction_loss(output.reconstruction, batch.image, undescribed), undescribed.sum().float())


class Diversity(Term):
    """Keeps concepts that nobody labelled apart and alive, where the data name no concepts; not in the paper.

    With several processes it is that within the images of each.
    """

    name = "diversity"

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(context.training.diversity_weight)

    def forward(self, output: Output, batch: Batch) -> Loss:
        if not self.weight or output.presence is None or batch.concepts is not None:
            return nothing(output)
        return sum_of(diversity_loss(output.presence), _number(output, len(batch.label)))


class Consistency(Term):
    """Several views of an image get the same answer, where a batch has some; not in the paper."""

    name = "consistency"

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(number(context.training.consistency_weight))

    def forward(self, output: Output, batch: Batch) -> Loss:
        if not self.weight or batch.views == 1:
            return nothing(output)
        return sum_of(consistency_loss(output.logits, batch.views), _number(output, len(batch.label)))


def mixture(batch: Batch) -> dict[str, Any]:
    """What the losses of classes want to know of images that were mixed."""
    return {} if batch.mixed is None else {"other": batch.mixed.label, "share": batch.mixed.share}


def sum_of(mean: Tensor, images: Tensor) -> Loss:
    """The sum of a loss whose mean over so many images is known."""
    return Loss(mean * images, images)


def nothing(output: Output) -> Loss:
    """The loss where no image counts."""
    return Loss(_number(output, 0), _number(output, 0))


def _number(output: Output, value: float) -> Tensor:
    return torch.full((), float(value), device=output.logits.device)


def known_concepts(presence: Tensor, batch: Batch) -> Tensor:
    """The concept labels (B, m), all unknown where the data name none."""
    if batch.concepts is None:
        return torch.full(presence.shape, torch.nan, device=presence.device)
    if batch.concepts.shape != presence.shape:
        shape, want = tuple(batch.concepts.shape), tuple(presence.shape)
        raise ValueError(f"batch.concepts has shape {shape}; give {want}, NaN where unknown")
    return batch.concepts


def described(concepts: Tensor) -> Tensor:
    """How many images have a known concept."""
    return (~concepts.isnan()).any(1).sum().float()


def to_tensor(values: Sequence[float] | Sequence[Sequence[float]] | None) -> Tensor | None:
    """Weights of classes or concepts as a buffer, where there are some."""
    return None if values is None else torch.tensor(values, dtype=torch.float32)
