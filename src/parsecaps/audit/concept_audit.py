"""How far stated concepts can be trusted: whether they are right, whether they are the reasons, what correcting helps.

Permutation importance of the concepts (Breiman 2001; Fisher et al. 2019), all of them at once: while the model runs,
each image gets the concept capsules and presences of another. The accuracy of a model that decides by its concepts
falls to chance; that of one whose class head runs beside them (`head="parallel"`) survives.

Completeness (Yeh et al. 2020): the logits are fitted as a linear function of the presences on the training cases; on
other cases R² and the share of equal diagnoses say how much of the decision the stated concepts account for.

Concept leakage (Mahinpei et al. 2021): if a classifier does much better with presences than with the same presences cut
to 0 and 1, they carry something beyond the concepts that they are named after: leakage, or at its most harmless, how
sure the model is of a concept.

Test-time interventions (Koh et al. 2020): accuracy as more and more concepts of an image are set to their truth.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np
import torch
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from parsecaps.data.case_set import CaseSet
from parsecaps.explain.intervention import ConceptReasoning, concept_reasoning, with_typical
from parsecaps.metrics import THRESHOLD, Difference, Score, Weighted, compare, means
from parsecaps.metrics.calibration import nll
from parsecaps.metrics.classification import Classification
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.scores import score
from parsecaps.model import Model
from parsecaps.nn.heads import ConceptReadout
from parsecaps.nn.recorder import hooked
from parsecaps.prediction.predict import answer, predict_cases
from parsecaps.types import Output


@dataclass(frozen=True)
class PermutedConcepts:
    """Accuracy on `n` labelled images with their own concepts and with those of others.

    `chance` is the accuracy of the model's diagnoses handed to other images. `survives` is the share of the accuracy
    above chance that is left: 0 where the diagnosis follows the concepts, 1 where it ignores them.
    """

    accuracy: float
    shuffled: float
    chance: float
    survives: float | None
    n: int


@dataclass(frozen=True)
class Completeness:
    """How far a linear function of the presences says what the model's own head says, on `n` cases.

    `r2` is of the logits, less their mean over the classes. `agreement` is the share of equal diagnoses, beside that of
    always naming the model's `most_frequent` one. `accuracy` is that of the linear function.
    """

    r2: float
    agreement: float
    most_frequent: float
    accuracy: float | None
    model_accuracy: float | None
    n: int


def permuted_concepts(model: Model, cases: CaseSet, *, seed: int = 0) -> PermutedConcepts:
    """Run the model on labelled cases with their own concepts, and again with those of the next in a random order."""
    layers = [module for module in model.network.modules() if isinstance(module, ConceptReadout)]
    if not layers:
        raise ValueError(f"{type(model.network).__name__} has no concepts to permute; give a model with concepts")
    labelled = np.flatnonzero(cases.labels >= 0)
    order = cases.subset(labelled[np.random.default_rng(seed).permutation(len(labelled))])
    batch_size = 64
    while len(order) % batch_size == 1:  # a case alone in the last batch would get its own concepts
        batch_size += 1
    own = predict_cases(model, order, batch_size=batch_size)

    def exchange(module: nn.Module, inputs: Any, output: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        if isinstance(output, Tensor):  # presences alone
            return torch.roll(output, 1, 0)
        return tuple(torch.roll(part, 1, 0) for part in output)

    with hooked(layers, exchange):
        others = predict_cases(model, order, batch_size=batch_size)
    named = own.logits.argmax(1)
    accuracy, shuffled = (float((each.logits.argmax(1) == own.label).mean()) for each in (own, others))
    classes = np.arange(len(own.classes))
    chance = float(((own.label[:, None] == classes).mean(0) * (named[:, None] == classes).mean(0)).sum())
    survives = (shuffled - chance) / (accuracy - chance) if accuracy > chance else None
    return PermutedConcepts(accuracy, shuffled, chance, survives, len(order))


def concept_completeness(train: Predictions, test: Predictions) -> Completeness:
    """Fit the model's logits from its presences on training cases, and compare on others."""
    wanted, given = (each.logits - each.logits.mean(1, keepdims=True) for each in (train, test))
    fitted = LinearRegression().fit(train.presence, wanted).predict(test.presence)
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


_UNSEEN = 1e-6  # the probability of a class that no training case has


@dataclass(frozen=True)
class Leakage:
    """Accuracy by hard concepts (`first`) and soft presences (`second`) on `n` other cases, and the mean losses."""

    accuracy: Difference
    nll_hard: float
    nll_soft: float
    n: int


def leakage(train: Predictions, test: Predictions, *, resamples: int = 1000, seed: int = 0) -> Leakage:
    """Fit a logistic regression on the training cases, on soft and on hard concepts, and score both on the others.

    Hard means seen or not: a presence above 0.5. Soft adds how far the presence lies from the mean of those that are
    seen alike, as a linear function cannot look past the step from absent to present. Cases without label take no part.
    """
    train, test = (each.subset(np.flatnonzero(each.label >= 0)) for each in (train, test))
    assert train.presence is not None
    assert test.presence is not None
    known, others = (_soft(each, train.presence) for each in (train.presence, test.presence))
    hard, soft = (  # the first half of the features is hard
        replace(test, logits=class_logits(known[:, :count], train, others[:, :count]))
        for count in (train.presence.shape[1], known.shape[1])
    )
    difference = compare(hard, soft, resamples=resamples, seed=seed).differences["accuracy"]
    hard_nll, soft_nll = (float(nll(Weighted(Classification.of(each)))[0]) for each in (hard, soft))
    return Leakage(difference, hard_nll, soft_nll, len(test))


def _soft(presence: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Whether each concept is seen, and how far its presence is from the mean of those `known` that are seen alike."""
    hard, sides = presence > THRESHOLD, known > THRESHOLD
    means = [
        (known * side).sum(0) / np.maximum(side.sum(0), 1)  # 0 where none is on that side: one shift for all
        for side in (~sides, sides)
    ]
    return np.column_stack([hard, presence - np.where(hard, means[1], means[0])])


def class_logits(features: np.ndarray, train: Predictions, others: np.ndarray) -> np.ndarray:
    """Logistic regression on the standardised features (N, m) of training cases: `others` (M, m) -> (M, classes)."""
    seen = np.unique(train.label)
    logits = np.full((len(others), len(train.classes)), np.log(_UNSEEN))
    if len(seen) == 1:
        logits[:, seen] = 0
        return logits
    scaler = StandardScaler().fit(features)
    inverse_penalty = 2.0 if len(seen) == 2 else 1.0  # of two classes it fits the difference, with half the penalty
    regression = LogisticRegression(C=inverse_penalty, tol=1e-10, max_iter=10_000)
    regression.fit(scaler.transform(features), train.label)
    logits[:, seen] = regression.predict_log_proba(scaler.transform(others))
    return logits


Order = Literal["uncertain", "random"]

_RANDOM_ORDERS = 10


@dataclass(frozen=True)
class InterventionCurve:
    """Accuracy on `n` labelled images after 0, 1, ..., m corrections of each, with 95 % intervals over patients."""

    order: Order
    accuracy: list[float]
    interval: list[tuple[float, float] | None]
    n: int


@dataclass(frozen=True)
class ConceptAudit:
    """The scores of the concepts and whether the diagnosis rests on them; None where the notes say why.

    `overall` and `by_concept` are those of `Scores`, `present` how many images have each concept. `interventions` are
    curves, for a model that decides by concepts alone.
    """

    overall: dict[str, Score]
    by_concept: dict[str, dict[str, Score]]
    present: dict[str, int]
    interventions: list[InterventionCurve]
    leakage: Leakage | None
    shuffled: PermutedConcepts | None
    explained: Completeness | None


def audit_concepts(
    model: Model,
    cases: CaseSet,
    predictions: Predictions,
    train: Predictions | None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[ConceptAudit | None, list[str]]:
    """Measure the concepts on these cases; `train` is for what must be fitted. Also gives notes on what is missing."""
    if not model.concepts:
        return None, ["the model has no concepts: nothing is said about them"]
    if predictions.presence is None or predictions.concepts is None:
        return None, ["the data do not know the model's concepts: whether they are right cannot be said"]
    notes = []
    scores = score(predictions, resamples=resamples, seed=seed)
    labelled = int((predictions.label >= 0).sum())
    curves: list[InterventionCurve] = []
    if model.network.reasoning() is None:
        notes.append("the model does not decide by its concepts alone: corrections of them would change nothing")
    elif not labelled:
        notes.append("no label is known: the worth of corrections cannot be said")
    else:
        reasoning = _reasoning(model, cases)
        if train is not None and train.presence is not None and train.concepts is not None and len(train):
            reasoning = with_typical(reasoning, train.presence, train.concepts)
        curves = [
            intervention_curve(reasoning, predictions, each, resamples=resamples, seed=seed) for each in get_args(Order)
        ]
    permuted = permuted_concepts(model, cases, seed=seed) if labelled > 1 else None
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
    resamples: int = 1000,
    seed: int = 0,
) -> InterventionCurve:
    """Correct the concepts of each image one by one, to the presence that stands for present or absent.

    "uncertain": first the presence that is nearest to the threshold. "random": the mean over ten random orders.
    """
    labelled = np.flatnonzero(predictions.label >= 0)
    some, reasoning = predictions.subset(labelled), reasoning.of_image(labelled)
    presence, truth = some.presence, some.concepts
    assert presence is not None
    assert truth is not None
    random, known = np.random.default_rng(seed), ~np.isnan(truth)
    corrected = np.where(truth == 1, reasoning.present, reasoning.absent)
    turns = 1 if order == "uncertain" else _RANDOM_ORDERS
    right = np.zeros((len(some), presence.shape[1] + 1))
    for _ in range(turns):
        doubt = np.abs(presence - reasoning.threshold) if order == "uncertain" else random.random(presence.shape)
        rank = np.where(known, doubt, np.inf).argsort(1, kind="stable").argsort(1, kind="stable")
        for count in range(right.shape[1]):
            now = np.where(known & (rank < count), corrected, presence)
            right[:, count] += reasoning.logits(now).argmax(1) == some.label
    right /= turns
    scores = means(right, some.groups(), resamples=resamples, seed=seed).scores()
    intervals = [None if each.low is None or each.high is None else (each.low, each.high) for each in scores]
    return InterventionCurve(order, right.mean(0).tolist(), intervals, len(some))


def _reasoning(model: Model, cases: CaseSet) -> ConceptReasoning:
    """That of the model, or of each of these cases where each has its own."""
    found = model.network.reasoning()
    if found is None or not found.by_image:
        return concept_reasoning(model)
    parts = [answer(model, batch.image) for batch in cases.batches()]
    read = ("logits", "presence", "concept_weights")
    joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in read}
    return concept_reasoning(model, output=Output(**joined))
