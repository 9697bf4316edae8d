"""How far stated concepts can be trusted: whether they are right, whether they are the reasons, what correcting helps.

Test-time interventions (Koh et al. 2020): accuracy as more and more concepts of an image are set to their truth.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch

from parsecaps.audit.completeness import (
    Completeness,
    Leakage,
    PermutedConcepts,
    concept_completeness,
    leakage,
    permuted_concepts,
)
from parsecaps.data.case_set import CaseSet
from parsecaps.explain.intervention import ConceptReasoning, concept_reasoning, with_typical
from parsecaps.metrics import Score
from parsecaps.metrics.bootstrap import interval, resampled_weights
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.scores import score
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import answer
from parsecaps.types import Output

Order = Literal["uncertain", "random"]

_READ = ("logits", "presence", "concept_weights")


@dataclass(frozen=True)
class InterventionCurve:
    """Accuracy on `n` labelled images after 0, 1, ..., m corrections of each, with 95 % intervals over patients.

    An image with unknown concepts has fewer corrections to take, and stays as it is after its last.
    """

    order: Order
    accuracy: list[float]
    interval: list[tuple[float, float] | None]
    n: int


@dataclass(frozen=True)
class ConceptAudit:
    """The scores of the concepts and whether the diagnosis rests on them; None where the notes say why.

    `overall` has mean_auroc, mean_f1, explanation_error_l2 and explanation_error_l2_squared; `by_concept` auroc and f1,
    `present` how many images have each concept. `interventions` are curves, for a model that decides by concepts alone.
    """

    overall: dict[str, Score]
    by_concept: dict[str, dict[str, Score]]
    present: dict[str, int]
    interventions: list[InterventionCurve]
    leakage: Leakage | None
    shuffled: PermutedConcepts | None
    explained: Completeness | None


def audit_concepts(
    bundle: Bundle,
    cases: CaseSet,
    predictions: Predictions,
    train: Predictions | None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[ConceptAudit | None, list[str]]:
    """Measure the concepts on these cases, of which the model's `predictions` are known; and notes on what is missing.

    `train` are the predictions of its training cases, on which the measures that fit something fit it.
    """
    if not bundle.concepts:
        return None, ["the model has no concepts: nothing is said about them"]
    if predictions.presence is None or predictions.concepts is None:
        return None, ["the data do not know the model's concepts: whether they are right cannot be said"]
    notes = []
    scores = score(predictions, resamples=resamples, seed=seed)
    labelled = int((predictions.label >= 0).sum())
    curves: list[InterventionCurve] = []
    if bundle.model.reasoning() is None:
        notes.append("the model does not decide by its concepts alone: corrections of them would change nothing")
    elif not labelled:
        notes.append("no label is known: the worth of corrections cannot be said")
    else:
        reasoning = _reasoning(bundle, cases)
        if train is not None and train.presence is not None and train.concepts is not None and len(train):
            reasoning = with_typical(reasoning, train.presence, train.concepts)
        curves = [
            intervention_curve(reasoning, predictions, each, resamples=resamples, seed=seed) for each in get_args(Order)
        ]
    permuted = permuted_concepts(bundle, cases, seed=seed) if labelled > 1 else None
    leaked = complete = None
    if train is None or train.presence is None or not (train.label >= 0).any():
        notes.append("the training cases are not at hand: leakage, and what concepts explain, cannot be fitted")
    else:
        leaked = leakage(train, predictions, resamples=resamples, seed=seed) if labelled else None
        complete = concept_completeness(train, predictions)
    overall = {name: each for name, each in scores.concepts.items() if each.value is not None}
    found = ConceptAudit(overall, scores.by_concept, scores.present, curves, leaked, permuted, complete)
    return found, notes


def intervention_curve(
    reasoning: ConceptReasoning,
    predictions: Predictions,
    order: Order = "uncertain",
    *,
    repeats: int = 10,
    resamples: int = 1000,
    seed: int = 0,
) -> InterventionCurve:
    """Correct the concepts of each image one by one.

    "uncertain": first the concept whose presence is nearest to what parts present from absent, as an assistant would
    ask. "random": the mean over `repeats` random orders, each image with its own; what asking cleverly must beat.
    A corrected concept takes the presence that stands for present or absent (`ConceptReasoning`).
    """
    if order not in get_args(Order):
        raise ValueError(f"order is {order!r}; choose one of {', '.join(get_args(Order))}")
    if predictions.presence is None or predictions.concepts is None:
        raise ValueError("the cases have no known concepts, so nothing can be corrected; give data with concepts")
    labelled = np.flatnonzero(predictions.label >= 0)
    some, reasoning = predictions.subset(labelled), reasoning.of_image(labelled)
    if not len(some):
        raise ValueError("no case has a known label; accuracy cannot be measured")
    presence, truth = some.presence, some.concepts
    assert presence is not None
    assert truth is not None
    random = np.random.default_rng(seed)
    turns = 1 if order == "uncertain" else repeats
    right = np.zeros((len(some), presence.shape[1] + 1))
    for _ in range(turns):
        doubt = np.abs(presence - reasoning.threshold) if order == "uncertain" else random.random(presence.shape)
        right += _right(reasoning, presence, truth, doubt, some.label) / turns
    blocks = [
        weights.T @ right / weights.sum(0)[:, None] for weights in resampled_weights(some.groups(), resamples, seed)
    ]
    drawn = np.concatenate(blocks) if blocks else np.empty((0, right.shape[1]))
    patients, accuracy = len(np.unique(some.groups())), right.mean(0).tolist()
    intervals = [interval(value, column, patients) for value, column in zip(accuracy, drawn.T, strict=True)]
    return InterventionCurve(order, accuracy, intervals, len(some))


def _right(
    reasoning: ConceptReasoning, presence: np.ndarray, truth: np.ndarray, doubt: np.ndarray, label: np.ndarray
) -> np.ndarray:
    """Whether each image is right after each number of corrections, least doubt value first: (N, m + 1)."""
    known = ~np.isnan(truth)
    rank = np.where(known, doubt, np.inf).argsort(1, kind="stable").argsort(1, kind="stable")
    corrected = np.where(truth == 1, reasoning.present, reasoning.absent)
    steps = []
    for count in range(presence.shape[1] + 1):
        now = np.where(known & (rank < count), corrected, presence)
        steps.append(reasoning.logits(now).argmax(1) == label)
    return np.stack(steps, axis=1).astype(np.float64)


def _reasoning(bundle: Bundle, cases: CaseSet) -> ConceptReasoning:
    """That of the model, or of each of these cases where each has its own."""
    found = bundle.model.reasoning()
    if found is None or not found.by_image:
        return concept_reasoning(bundle)
    parts = [answer(bundle, batch.image) for batch in cases.batches()]
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in _READ}
    return concept_reasoning(bundle, output=Output(**joined))
