"""Concept completeness: are the stated concepts the reasons, or does a diagnosis bypass them?

Two measurements, the same for every head.

Permutation importance of the concepts (Breiman 2001; Fisher et al. 2019), all of them at once: while the model runs,
each image gets the concept capsules and presences of another, at the place where the network makes them; all else
stays. A model that decides by its concepts then decides for the other image, and its accuracy falls to what chance
gives. One whose class head runs beside the concepts (`head="parallel"`) does not notice: all of its accuracy survives,
so no concept that it states has any part in its diagnosis.

Completeness (Yeh et al. 2020): how far the presences suffice to say what the class head says, as both read the same
capsules. The logits are fitted as a linear function of the presences, which is all that a bottleneck could do, on the
training cases; on other cases R² and the share of equal diagnoses say how much of the decision the stated concepts
account for. What a linear function misses, another one might find.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.nn.heads import ConceptLayer, LinearConcepts
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import predict_cases
from parsecaps.prediction.predictions import Predictions


@dataclass(frozen=True)
class PermutedConcepts:
    """Accuracy on `n` labelled images with their own concepts and with those of others.

    `chance` is the accuracy of the model's diagnoses handed to other images. `survives` is the share of the accuracy
    above chance that is left: 0 where the diagnosis follows the concepts, 1 where it ignores them; None where the
    model is no better than chance.
    """

    accuracy: float
    shuffled: float
    chance: float
    survives: float | None
    n: int


@dataclass(frozen=True)
class Completeness:
    """How far a linear function of the presences says what the model's own head says, on `n` cases.

    `r2` is of the logits (less their mean over the classes, which no probability depends on). `agreement` is the share
    of equal diagnoses, beside that of always naming the model's most frequent one. `accuracy` is that of the linear
    function, `model_accuracy` that of the model; None without labels.
    """

    r2: float
    agreement: float
    most_frequent: float
    accuracy: float | None
    model_accuracy: float | None
    n: int


def permuted_concepts(
    bundle: Bundle, data: DataSet, prepared: PreparedImages, rows: Sequence[int], *, batch_size: int = 64, seed: int = 0
) -> PermutedConcepts:
    """Run the model on labelled cases with their own concepts, and again with those of the next in a random order."""
    layers = [module for module in bundle.model.modules() if isinstance(module, ConceptLayer | LinearConcepts)]
    if not layers:
        raise ValueError(f"{type(bundle.model).__name__} has no concepts to permute; give a model with concepts")
    labelled = [row for row in rows if data.cases[row].label >= 0]
    if len(labelled) < 2:
        raise ValueError(f"{len(labelled)} labelled case cannot exchange concepts; give at least 2")
    order = [labelled[i] for i in np.random.default_rng(seed).permutation(len(labelled))]
    while len(order) % batch_size == 1:  # a case alone in the last batch would get its own concepts
        batch_size += 1
    own = predict_cases(bundle, data, prepared, order, batch_size=batch_size)

    def exchange(module: nn.Module, inputs: Any, output: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        if isinstance(output, Tensor):  # presences alone
            return torch.roll(output, 1, 0)
        return tuple(torch.roll(part, 1, 0) for part in output)

    handles = [layer.register_forward_hook(exchange) for layer in layers]
    try:
        others = predict_cases(bundle, data, prepared, order, batch_size=batch_size)
    finally:
        for handle in handles:
            handle.remove()
    named = own.logits.argmax(1)
    accuracy, shuffled = (float((each.logits.argmax(1) == own.label).mean()) for each in (own, others))
    classes = np.arange(len(own.classes))
    chance = float(((own.label[:, None] == classes).mean(0) * (named[:, None] == classes).mean(0)).sum())
    survives = (shuffled - chance) / (accuracy - chance) if accuracy > chance else None
    return PermutedConcepts(accuracy, shuffled, chance, survives, len(order))


def concept_completeness(train: Predictions, test: Predictions) -> Completeness:
    """Fit the model's logits from its presences on training cases, and compare on others."""
    if train.presence is None or test.presence is None:
        raise ValueError("the predictions have no presences; give those of a model with concepts")
    if not len(train) or not len(test):
        raise ValueError(f"{len(train)} cases to fit and {len(test)} to compare on; give some of both")
    wanted, given = (each.logits - each.logits.mean(1, keepdims=True) for each in (train, test))
    solved, *_ = np.linalg.lstsq(_with_one(train.presence), wanted, rcond=None)
    fitted = _with_one(test.presence) @ solved
    spread = ((given - given.mean(0)) ** 2).sum()
    by_concepts, named, known = fitted.argmax(1), test.logits.argmax(1), test.label >= 0
    return Completeness(
        r2=float(1 - ((given - fitted) ** 2).sum() / spread) if spread > 0 else 1.0,
        agreement=float((by_concepts == named).mean()),
        most_frequent=float(np.bincount(named).max() / len(named)),
        accuracy=float((by_concepts == test.label)[known].mean()) if known.any() else None,
        model_accuracy=float((named == test.label)[known].mean()) if known.any() else None,
        n=len(test),
    )


def _with_one(presence: np.ndarray) -> np.ndarray:
    return np.column_stack([presence, np.ones(len(presence))])
