"""The training objective: the four losses of Sec. 3.3, four of our own, and their weights."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from parsecaps.functional import (
    class_loss,
    consistency_loss,
    diversity_loss,
    presentation_loss,
    reconstruction_loss,
    triplet_loss,
)
from parsecaps.nn.phrases import PhraseEmbedding
from parsecaps.training.mask_guide import MaskGuide
from parsecaps.training.measure_guide import MeasureGuide
from parsecaps.types import Batch, Output


class Losses(NamedTuple):
    """The total to minimise and its eight parts before they are weighted, each of shape ()."""

    total: Tensor
    classification: Tensor
    presentation: Tensor
    triplet: Tensor
    reconstruction: Tensor
    diversity: Tensor
    mask: Tensor
    measure: Tensor
    consistency: Tensor


class Objective(nn.Module):
    """`L_class + 0.5 L_presentation + 0.1 L_triplet + 0.0005 L_reconstruction`, where an image has them.

    An image with a known concept counts in the presentation and the triplet loss; one without counts in
    the reconstruction loss, if the model was asked to reconstruct; one with a known label counts in the
    classification loss. Each loss is a mean over the images that count in it, so a batch in which all have
    concepts gives the paper's loss with concepts, and one in which none has gives its loss without. What is
    unknown, or what the model does not give, costs 0.

    Deviation: the paper calls two weights `eta`; here each has a name. The phrases of the triplet loss are
    learned unless `phrase_vectors` (num_concepts, any) are given; the parameters of this module are to be
    trained along with the model's; with `concept_dim=None`, for a model without concept capsules, there are none.
    `class_weights`, one number per class, balance rare classes; `concept_weights`, one number per concept where it is
    absent and one where it is present, rare concepts.

    Deviation: where a batch has no concept labels at all (`batch.concepts` is None: the data name no concepts), nothing
    of the paper's keeps the concepts from all saying the same; `diversity_loss` does, with its `diversity_weight`.

    Deviation: with a `guide`, masks are a further target, with its `mask_weight`, and with a `measure_guide` what was
    measured of lesions, with its `measure_weight`; where a batch has several views of
    its images, the answers to them are to agree, with `consistency_weight`.

    >>> output = Output(logits=torch.tensor([[2.0, 0.0], [0.0, 5.0]]))
    >>> batch = Batch(image=torch.zeros(2, 1, 28, 28), label=torch.tensor([0, -1]))
    >>> Objective()(output, batch).total
    tensor(0.1269)
    """

    class_weights: Tensor | None
    concept_weights: Tensor | None

    def __init__(
        self,
        *,
        num_concepts: int = 0,
        concept_dim: int | None = 16,
        phrase_vectors: Tensor | None = None,
        presentation_weight: float = 0.5,
        triplet_weight: float = 0.1,
        reconstruction_weight: float = 0.0005,
        diversity_weight: float = 0.3,
        class_weights: Sequence[float] | None = None,
        concept_weights: Sequence[Sequence[float]] | None = None,
        label_smoothing: float = 0.0,
        mask_weight: float = 0.0,
        guide: MaskGuide | None = None,
        measure_weight: float = 0.0,
        measure_guide: MeasureGuide | None = None,
        consistency_weight: float = 0.0,
    ) -> None:
        super().__init__()
        weights = {
            "presentation_weight": presentation_weight,
            "triplet_weight": triplet_weight,
            "reconstruction_weight": reconstruction_weight,
            "diversity_weight": diversity_weight,
            "mask_weight": mask_weight,
            "measure_weight": measure_weight,
            "consistency_weight": consistency_weight,
            **{f"class_weights[{i}]": weight for i, weight in enumerate(class_weights or ())},
        }
        for name, value in weights.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"{name} is {value}; give 0 (off) or a positive number")
        if not 0 <= label_smoothing < 1:
            raise ValueError(f"label_smoothing is {label_smoothing}; give 0 (off) or a number below 1")
        if num_concepts < 0:
            raise ValueError(f"num_concepts is {num_concepts}; give 0 (no concepts) or more")
        if phrase_vectors is not None and not num_concepts:
            raise ValueError("phrase_vectors with num_concepts=0 name nothing; give num_concepts as well")
        self.num_concepts = num_concepts
        self.concept_dim = concept_dim
        self.presentation_weight = presentation_weight
        self.triplet_weight = triplet_weight
        self.reconstruction_weight = reconstruction_weight
        self.diversity_weight = diversity_weight
        self.label_smoothing = label_smoothing
        self.mask_weight, self.guide = mask_weight, guide
        self.measure_weight, self.measure_guide = measure_weight, measure_guide
        self.consistency_weight = consistency_weight
        weight = None if class_weights is None else torch.tensor(class_weights, dtype=torch.float32)
        self.register_buffer("class_weights", weight)
        weight = None if concept_weights is None else torch.tensor(concept_weights, dtype=torch.float32)
        self.register_buffer("concept_weights", weight)
        self.phrases = (
            PhraseEmbedding(num_concepts=num_concepts, concept_dim=concept_dim, phrase_vectors=phrase_vectors)
            if num_concepts and concept_dim is not None
            else None
        )

    def forward(self, output: Output, batch: Batch) -> Losses:
        self._check(output, batch)
        classification = class_loss(
            output.logits, batch.label, self.class_weights, self.label_smoothing, **mixture(batch)
        )
        nothing = torch.zeros_like(classification)
        presentation = triplet = reconstruction = diversity = mask = measure = consistency = nothing
        concepts = batch.concepts
        if concepts is None:
            concepts = torch.full((len(batch.label), self.num_concepts), torch.nan, device=batch.label.device)
        if output.presence is not None:
            presentation = presentation_loss(output.presence, concepts, weights=self.concept_weights)
        if output.concept_capsules is not None and self.phrases is not None:
            capsules, phrases = self.phrases(output.concept_capsules)
            triplet = triplet_loss(capsules, phrases, concepts)
        if output.reconstruction is not None:
            without_concepts = concepts.isnan().all(1)
            reconstruction = reconstruction_loss(output.reconstruction, batch.image, without_concepts)
        if self.diversity_weight and output.presence is not None and batch.concepts is None:
            diversity = diversity_loss(output.presence)
        if self.guide is not None and batch.mask is not None:
            mask = self.guide(batch.mask)
        if self.measure_guide is not None and batch.measures is not None:
            measure = self.measure_guide(batch.measures)
        if self.consistency_weight and batch.views > 1:
            consistency = consistency_loss(output.logits, batch.views)
        total = (
            classification
            + self.presentation_weight * presentation
            + self.triplet_weight * triplet
            + self.reconstruction_weight * reconstruction
            + self.diversity_weight * diversity
            + self.mask_weight * mask
            + self.measure_weight * measure
            + self.consistency_weight * consistency
        )
        return Losses(
            total, classification, presentation, triplet, reconstruction, diversity, mask, measure, consistency
        )

    def _check(self, output: Output, batch: Batch) -> None:
        """Refuse an output or a batch with other concepts or classes than this objective was built for."""
        num_classes = output.logits.shape[-1]
        if self.class_weights is not None and len(self.class_weights) != num_classes:
            given = f"{len(self.class_weights)} class_weights for {num_classes} classes"
            raise ValueError(f"{given}; give {num_classes}, one per class")
        capsules = output.concept_capsules
        if capsules is None:
            return
        m, concept_dim = capsules.shape[1:]
        if (m, concept_dim) != (self.num_concepts, self.concept_dim):
            given = f"{m} concept capsules of dimension {concept_dim}"
            fix = f"build the objective with num_concepts={m}, concept_dim={concept_dim}"
            raise ValueError(f"{given}, not {self.num_concepts} of {self.concept_dim}; {fix}")
        if batch.concepts is not None and batch.concepts.shape != (len(batch.label), m):
            shape, want = tuple(batch.concepts.shape), (len(batch.label), m)
            raise ValueError(f"batch.concepts has shape {shape}; give {want}, NaN where unknown")


def mixture(batch: Batch) -> dict[str, Any]:
    """What `class_loss` has to know of images that were mixed."""
    return {} if batch.mixed is None else {"other": batch.mixed.label, "share": batch.mixed.share}
