"""The terms of the training objective: the four losses of Sec. 3.3 and three of our own; yours goes into `TERMS`."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

from parsecaps.config import TrainingSection
from parsecaps.functional import (
    class_loss,
    consistency_loss,
    diversity_loss,
    presentation_loss,
    reconstruction_loss,
    triplet_loss,
)
from parsecaps.functional.losses import class_weight
from parsecaps.models import PretrainedModel, all_models
from parsecaps.nn.heads import MARGINS, PhraseEmbedding
from parsecaps.training.phrase_vectors import phrase_vectors
from parsecaps.types import Batch, Output

if TYPE_CHECKING:
    from parsecaps.data.batches import Batches

Need = Literal["masks", "views", "picture", "decoder"]


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
    """What terms are built from: the settings, the model, and the weights of rare classes and concepts, if any.

    `class_sets` gives the data set of each class, where there are several. `undescribed`: some image has no known
    concept. `concepts` are the names of those that are learned. `shared` holds modules that several terms share; the
    first term that needs one creates it.
    """

    training: TrainingSection
    model: PretrainedModel
    class_weights: Sequence[float] | None = None
    concept_weights: Sequence[Sequence[float]] | None = None
    class_sets: Sequence[int] | None = None
    undescribed: bool = False
    concepts: Sequence[str] = ()
    shared: dict[str, nn.Module] = field(default_factory=dict)

    def weight(self, name: str) -> float:
        """The weight of a term: as it is set, or as the model was published with."""
        return loss_weight(self.training, type(self.model), name)

    def arguments(self, name: str) -> dict[str, Any]:
        """The weight of a term, and what else is set of it."""
        return {**(self.training.loss(name).model_extra or {}), "weight": self.weight(name)}


def loss_weight(training: TrainingSection, model: type[PretrainedModel], name: str) -> float:
    """The weight of a term in training a kind of model: as it is set, or as the model was published with."""
    given = training.loss(name).weight
    return model.losses.get(name, 0.0) if given == "auto" else float(given)


class Term(nn.Module, ABC):
    """One loss of the objective, with its name and its weight in the total; it may have parameters of its own.

    It may need the `masks` of lesions, several `views` of each training image, the model's `picture` of each image, or
    the model's `decoder`, which it calls itself.

    Shapes:
        - input: an `Output` and its `Batch`
        - output: `Loss`
    """

    name: ClassVar[str]
    optional: ClassVar[bool] = True  # left out where its weight is 0; else it is measured all the same
    needs: frozenset[Need] = frozenset()
    models: Sequence[PretrainedModel] = ()  # the one that learns, in a list: the term does not own its weights

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        if not 0 <= weight < math.inf:
            raise ValueError(f"the weight of the loss {self.name} is {weight}; give 0 (off) or a positive number")
        self.weight = weight

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        """Whether a training has this term at all."""
        return not cls.optional or bool(context.weight(cls.name))

    @classmethod
    def build(cls, context: TermContext) -> Self:
        """The term as the settings want it."""
        return cls(**context.arguments(cls.name))

    @abstractmethod
    def forward(self, output: Output, batch: Batch) -> Loss: ...

    def after_epoch(self, model: PretrainedModel, batches: "Batches", epoch: int) -> None:
        """Change the model after an epoch, before validation: alike in every process, with state kept in buffers."""

    def after_training(self, model: PretrainedModel, batches: "Batches") -> None:
        """Change the model that is kept, in the first process alone."""


class ClassTerm(Term):
    """A loss of class scores over the images whose class is known, each counting by the weight of its class."""

    class_weights: Tensor | None
    class_sets: Tensor | None

    def __init__(
        self, class_weights: Sequence[float] | None = None, class_sets: Sequence[int] | None = None, weight: float = 1.0
    ) -> None:
        super().__init__(weight)
        for i, each in enumerate(class_weights or ()):
            if not 0 <= each < math.inf:
                raise ValueError(f"class_weights[{i}] is {each}; give 0 (off) or a positive number")
        self.register_buffer("class_weights", None if class_weights is None else torch.tensor(class_weights).float())
        sets = None if class_sets is None else torch.tensor(class_sets)
        self.register_buffer("class_sets", sets, persistent=False)

    @classmethod
    def build(cls, context: TermContext) -> Self:
        given: dict[str, Any] = {"class_weights": context.class_weights, "class_sets": context.class_sets}
        return cls(**given, **context.arguments(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        weight, num_classes = self.class_weights, output.logits.shape[-1]
        if weight is not None and len(weight) != num_classes:
            given = f"{len(weight)} class_weights for {num_classes} classes"
            raise ValueError(f"{given}; give {num_classes}, one per class")
        mixed: dict[str, Any] = {} if batch.mixed is None else {"other": batch.mixed.label, "share": batch.mixed.share}
        mean = self.mean(output.logits, batch.label, weight=weight, sets=self.class_sets, **mixed)
        return sum_of(mean, class_weight(batch.label, weight, **mixed))

    @abstractmethod
    def mean(self, logits: Tensor, label: Tensor, **more: Any) -> Tensor:
        """The mean loss; `more` is what `class_loss` and `margin_loss` take alike."""


class Classification(ClassTerm):
    """Cross-entropy (Eq. 3.3)."""

    name = "classification"

    def __init__(
        self,
        class_weights: Sequence[float] | None = None,
        label_smoothing: float = 0.0,
        class_sets: Sequence[int] | None = None,
        weight: float = 1.0,
    ) -> None:
        super().__init__(class_weights, class_sets, weight)
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give 0 (off) or a number below 1")
        if label_smoothing and class_sets is not None:
            raise ValueError(f"label_smoothing is {label_smoothing}, which several data sets cannot have; set it to 0")
        self.label_smoothing = label_smoothing

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        return not context.model.intervention_probability

    @classmethod
    def build(cls, context: TermContext) -> Self:
        smoothing, more = context.training.label_smoothing, context.arguments(cls.name)
        return cls(context.class_weights, smoothing, context.class_sets, **more)

    def mean(self, logits: Tensor, label: Tensor, **more: Any) -> Tensor:
        return class_loss(logits, label, label_smoothing=self.label_smoothing, **more)


class Presentation(Term):
    """Concept capsules are long where their concept is present and short where it is absent (Eq. 3.1).

    `margins` are the lengths below which an absent concept, and above which a present one, costs nothing.
    """

    name = "presentation"
    optional = False
    concept_weights: Tensor | None

    def __init__(
        self,
        weight: float,
        concept_weights: Sequence[Sequence[float]] | None = None,
        margins: tuple[float, float] = MARGINS,
    ) -> None:
        super().__init__(weight)
        absent, present = margins
        if not 0 <= absent < present <= 1:
            raise ValueError(f"the margins of the presentation loss are {margins}; give two from 0 to 1, in order")
        self.margins = {"margin_present": present, "margin_absent": absent}
        weights = None if concept_weights is None else torch.tensor(concept_weights).float()
        self.register_buffer("concept_weights", weights)

    @classmethod
    def build(cls, context: TermContext) -> Self:
        return cls(concept_weights=context.concept_weights, **context.arguments(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.presence is None:
            return nothing(output)
        concepts = known_concepts(output.presence, batch)
        loss = presentation_loss(output.presence, concepts, weights=self.concept_weights, **self.margins)
        return sum_of(loss, described(concepts))


class Triplet(Term):
    """The phrase of a concept lies nearer to its own capsule, if there are any, than to others (Eq. 3.2).

    Phrases are learned unless `phrase_vectors` (num_concepts, any) are given; by how much nearer, says the `margin`.
    """

    name = "triplet"
    optional = False

    def __init__(
        self,
        weight: float,
        *,
        num_concepts: int = 0,
        concept_dim: int | None = None,
        phrase_vectors: Tensor | None = None,
        margin: float = 1.0,
    ) -> None:
        super().__init__(weight)
        if not 0 < margin < math.inf:
            raise ValueError(f"the margin of the triplet loss is {margin}; give a positive number")
        self.margin = margin
        if num_concepts < 0:
            raise ValueError(f"num_concepts is {num_concepts}; give 0 (no concepts) or more")
        self.shape = (num_concepts, concept_dim)
        self.phrases: PhraseEmbedding | None = None
        if num_concepts and concept_dim is not None:
            self.phrases = PhraseEmbedding(
                num_concepts=num_concepts, concept_dim=concept_dim, phrase_vectors=phrase_vectors
            )

    @classmethod
    def build(cls, context: TermContext) -> Self:
        model = context.model
        dim = model.config["concept_dim"] if model.has_capsules else None
        arguments = context.arguments(cls.name)
        if (given := arguments.pop("phrase_vectors", None)) is not None:
            if len(context.concepts) != model.num_concepts or dim is None:
                raise ValueError("phrase_vectors need concepts with names, and capsules for them; leave them out")
            arguments["phrase_vectors"] = phrase_vectors(str(given), context.concepts)
        return cls(num_concepts=model.num_concepts, concept_dim=dim, **arguments)

    def forward(self, output: Output, batch: Batch) -> Loss:
        capsules = output.concept_capsules
        if capsules is None:
            return nothing(output)
        m, dim = capsules.shape[1:]
        if (m, dim) != self.shape:
            given = f"{m} concept capsules of dimension {dim}, not {self.shape[0]} of {self.shape[1]}"
            raise ValueError(f"{given}; build the term with num_concepts={m}, concept_dim={dim}")
        assert self.phrases is not None
        concepts = known_concepts(capsules[:, :, 0], batch)
        embedded, phrases = self.phrases(capsules)
        return sum_of(triplet_loss(embedded, phrases, concepts, self.margin), described(concepts))


class Reconstruction(Term):
    """Squared error of the decoder's picture, over the images without a known concept (Sec. 3.3.2)."""

    name = "reconstruction"
    optional = False

    @classmethod
    def build(cls, context: TermContext) -> Self:
        term, model = super().build(context), context.model
        if context.undescribed and model.num_concepts and model.has_capsules:
            term.needs = frozenset({"picture"})
        return term

    def forward(self, output: Output, batch: Batch) -> Loss:
        if output.reconstruction is None or output.presence is None:
            return nothing(output)
        undescribed = known_concepts(output.presence, batch).isnan().all(1)
        return sum_of(reconstruction_loss(output.reconstruction, batch.image, undescribed), undescribed.sum())


class Diversity(Term):
    """Keeps concepts that nobody labelled distinct and varied, within the images of each process; not in the paper."""

    name = "diversity"
    optional = False

    def forward(self, output: Output, batch: Batch) -> Loss:
        if not self.weight or output.presence is None or batch.concepts is not None:
            return nothing(output)
        return sum_of(diversity_loss(output.presence), len(batch.label))


class Consistency(Term):
    """Several views of an image get the same answer; not in the paper."""

    name = "consistency"
    optional = False
    needs = frozenset({"views"})

    def forward(self, output: Output, batch: Batch) -> Loss:
        if not self.weight or batch.views == 1:
            return nothing(output)
        return sum_of(consistency_loss(output.logits, batch.views), len(batch.label))


class Intervention(Classification):
    """Cross-entropy of the class after every known concept is corrected, so that a correction improves a diagnosis.

    For a bottleneck over presences (deviation from the paper, which has none). Without it presences tell the classes
    more than their concepts do (leakage; Mahinpei et al. 2021), and a corrected concept may make the diagnosis worse. A
    known concept gets the presence that training aims at (Sec. 3.3.1); others keep theirs. Only the head learns from
    it.
    """

    name = "intervention"

    @classmethod
    def applies(cls, context: TermContext) -> bool:
        reasoning = context.model.reasoning()
        found = reasoning is not None and not reasoning.by_image and reasoning.scale == "presence"
        return found and bool(context.weight(cls.name))

    def forward(self, output: Output, batch: Batch) -> Loss:
        assert output.presence is not None
        presence, truth = output.presence.detach(), known_concepts(output.presence, batch)
        absent, present = MARGINS
        right = absent + (present - absent) * truth.nan_to_num()
        logits = self.models[0].decide(output, torch.where(truth.isnan(), presence, right))
        has_truth = ~truth.isnan().all(1)
        batch = batch._replace(label=batch.label.where(has_truth, -1))
        if batch.mixed is not None:
            batch = batch._replace(mixed=batch.mixed._replace(label=batch.mixed.label.where(has_truth, -1)))
        return super().forward(output._replace(logits=logits), batch)


def sum_of(mean: Tensor, images: Tensor | int) -> Loss:
    """The sum of a loss whose mean over so many images is known."""
    count = torch.as_tensor(images, dtype=torch.float32, device=mean.device)
    return Loss(mean * count, count)


def nothing(output: Output) -> Loss:
    """The loss where no image counts."""
    return sum_of(torch.zeros((), device=output.logits.device), 0)


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
    return (~concepts.isnan()).any(1).sum()


TERMS: list[type[Term]] = [Classification, Presentation, Triplet, Reconstruction, Diversity, Consistency, Intervention]


def find_terms(name: str) -> list[type[Term]]:
    """The classes of a loss, one of which applies to a model; those of rivals are imported when one is asked for."""
    if not any(term.name == name for term in TERMS):
        all_models()
    found = [term for term in TERMS if term.name == name]
    if not found:
        names = {term.name: None for term in TERMS}
        near = get_close_matches(name, names, 1) or names
        raise ValueError(f"training.losses.{name}: there is no such loss; did you mean {', '.join(near)}?")
    return found
