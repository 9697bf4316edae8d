"""The losses that other concept models were published with, as functions of tensors; the weights are the training's.

A concept may be unknown (NaN): it costs nothing and gets a gradient of 0. Half precision is summed in float32.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.functional.squash import widened


def concept_cross_entropy(logits: Tensor, concepts: Tensor, weights: Tensor | None = None) -> Tensor:
    """Binary cross-entropy, mean over the known concepts of an image, then over the images that have any.

    ``weights`` are those of the two sides for each concept, first of the absent; 1 without.

    Shapes:
        - logits: (B, m)
        - concepts: (B, m), 1 = present, 0 = absent, NaN = unknown
        - weights: (2, m)
        - output: ()

    >>> concept_cross_entropy(torch.tensor([[0.0, 9.0, 5.0]]), torch.tensor([[1.0, 1.0, torch.nan]]))
    tensor(0.3466)
    """
    check_concepts(logits, concepts)
    known, z = ~concepts.isnan(), concepts.nan_to_num().to(torch.float32)
    each = F.binary_cross_entropy_with_logits(widened(logits), z, reduction="none")
    if weights is not None:
        each = each * (z * weights[1] + (1 - z) * weights[0])
    return mean_over_known(each, known)


def likeness(maps: Tensor, phrases: Tensor) -> Tensor:
    """The cosine of each map and each phrase in their joint space.

    Shapes:
        - maps: (B, m, e); phrases: (m, e)
        - output: (B, m, m), maps down and phrases across
    """
    return F.normalize(widened(maps), dim=-1) @ F.normalize(widened(phrases), dim=-1).T


def semantic_loss(likeness: Tensor, concepts: Tensor, margin: float = 1.0) -> Tensor:
    """The map of a concept that is present is more like its own phrase than like any other.

    ``z_i max(0, margin + p_ik - p_ii)`` summed over ``k != i``, mean over the known concepts ``i`` (Wickramanayake et
    al. 2021), then over the images that have any.

    Shapes:
        - likeness: (B, m, m), of maps down and phrases across; concepts: (B, m), NaN = unknown
        - output: ()

    >>> semantic_loss(torch.tensor([[[0.9, 0.1], [0.5, 0.5]]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1000)
    """
    check_concepts(likeness, concepts)
    own = likeness.diagonal(dim1=1, dim2=2).unsqueeze(2)
    others = ~torch.eye(likeness.shape[1], dtype=torch.bool, device=likeness.device)
    cost = torch.where(others, F.relu(margin + likeness - own), 0).sum(2)
    return mean_over_known(concepts.nan_to_num() * cost, ~concepts.isnan())


def counter_loss(likeness: Tensor, concepts: Tensor, margin: float = 0.5) -> Tensor:
    """The map of a concept is more like its phrase in an image that shows it than in another that does not.

    ``max(0, p'_ii - p_ii + margin)`` for the concepts that an image has and its partner, the one before it in the
    batch, has not; mean over the known concepts, then over the images that have any.

    Shapes:
        - likeness: (B, m, m), as in ``semantic_loss``; concepts: (B, m), NaN = unknown
        - output: ()

    >>> alike = torch.diag_embed(torch.tensor([[0.9, 0.2], [0.6, 0.2]]))
    >>> counter_loss(alike, torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
    tensor(0.0500)
    """
    check_concepts(likeness, concepts)
    own, z, known = likeness.diagonal(dim1=1, dim2=2), concepts.nan_to_num(), ~concepts.isnan()
    apart = z * (1 - z.roll(1, 0)) * known.roll(1, 0)
    return mean_over_known(apart * F.relu(own.roll(1, 0) - own + margin), known)


def uniqueness_loss(activation: Tensor, concepts: Tensor, kind: str = "sigmoid") -> Tensor:
    """The concepts of an image are more active than the mean of all, the others less.

    "sigmoid": binary cross-entropy of what lies above the mean, mean over the known concepts (Wickramanayake et al.
    2021). "softmax": cross-entropy of its tanh, summed over the concepts that are present (Patricio et al. 2023).

    Shapes:
        - activation: (B, m); concepts: (B, m), NaN = unknown
        - output: ()

    >>> uniqueness_loss(torch.tensor([[4.0, 0.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(0.1269)
    """
    check_concepts(activation, concepts)
    centred = widened(activation) - widened(activation).mean(1, keepdim=True)
    if kind == "sigmoid":
        return concept_cross_entropy(centred, concepts)
    cost = -(concepts.nan_to_num() * centred.tanh().log_softmax(1)).sum(1)
    return cost.sum() / (~concepts.isnan()).any(1).sum().clamp(min=1)


def coherence_loss(maps: Tensor, mask: Tensor, concepts: Tensor) -> Tensor:
    """Maps of concepts lie where the lesion is: 1 - Dice of each, with 1 added above and below.

    The mask of an absent concept is empty. Mean over the known concepts, then over the images with any and with a mask.

    Shapes:
        - maps: (B, m, h, w) from 0 to 1; mask: (B, 1, h, w); concepts: (B, m), NaN = unknown
        - output: ()

    >>> mask = torch.tensor([[[[1.0, 0.0]]]])
    >>> coherence_loss(mask, mask, torch.tensor([[1.0]])), coherence_loss(mask, mask, torch.tensor([[0.0]]))
    (tensor(0.), tensor(0.5000))
    """
    check_concepts(maps, concepts)
    maps, wanted = widened(maps).flatten(2), mask.flatten(2) * concepts.nan_to_num().unsqueeze(2)
    dice = (2 * (maps * wanted).sum(2) + 1) / (maps.sum(2) + wanted.sum(2) + 1)
    return mean_over_known(1 - dice, masked_concepts(mask, concepts))


def masked_concepts(mask: Tensor, concepts: Tensor) -> Tensor:
    """Which concepts are known in images whose mask is not empty: (B, m) bool."""
    return ~concepts.isnan() & (mask.flatten(1).amax(1) > 0).unsqueeze(1)


def mean_over_known(each: Tensor, known: Tensor) -> Tensor:
    """The mean over the known concepts of an image, then over the images that have any: (B, m) twice -> ()."""
    images = torch.where(known, each, 0).sum(1) / known.sum(1).clamp(min=1)
    return images.sum() / known.any(1).sum().clamp(min=1)


def check_concepts(values: Tensor, concepts: Tensor) -> None:
    """Refuse values and labels of concepts that do not belong together."""
    if values.dim() < 2 or concepts.shape != values.shape[:2]:
        shapes = f"values {tuple(values.shape)} and concepts {tuple(concepts.shape)}"
        raise ValueError(f"{shapes}; give (B, m, ...) and (B, m)")
