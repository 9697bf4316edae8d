"""How far stated concepts can be trusted: whether they are right, and whether they are the reasons."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import get_args

from torch import nn

from parsecaps.audit.bypass import Explained, Shuffled, explained_by_concepts, shuffled_concepts
from parsecaps.audit.intervention_curve import InterventionCurve, Order, intervention_curve
from parsecaps.audit.leakage import Leakage, leakage
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.explain.intervention import concept_reasoning, typical_presences
from parsecaps.metrics import Score, score
from parsecaps.nn.heads import Bottleneck
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predictions import Predictions


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
    shuffled: Shuffled | None
    explained: Explained | None


def audit_concepts(
    bundle: Bundle,
    data: DataSet,
    prepared: PreparedImages,
    rows: Sequence[int],
    said: Predictions,
    train: Predictions | None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> tuple[ConceptAudit | None, list[str]]:
    """Measure the concepts on these cases, of which the model has `said` what it saw; and notes on what is missing.

    `train` is what it said of its training cases, on which the measures that fit something fit it.
    """
    if not bundle.concepts:
        return None, ["the model has no concepts: nothing is said about them"]
    if said.presence is None or said.concepts is None:
        return None, ["the data do not know the model's concepts: whether they are right cannot be said"]
    notes = []
    scores = score(said, resamples=resamples, seed=seed)
    labelled = int((said.label >= 0).sum())
    curves: list[InterventionCurve] = []
    if not _decides_by_concepts(bundle.model):
        notes.append("the model does not decide by its concepts alone: corrections of them would change nothing")
    elif not labelled:
        notes.append("no label is known: the worth of corrections cannot be said")
    else:
        reasoning = concept_reasoning(bundle)
        if train is not None and train.presence is not None and train.concepts is not None and len(train):
            absent, present, threshold = typical_presences(train.presence, train.concepts)
            reasoning = replace(reasoning, absent=absent, present=present, threshold=threshold)
        curves = [intervention_curve(reasoning, said, each, resamples=resamples, seed=seed) for each in get_args(Order)]
    shuffled = shuffled_concepts(bundle, data, prepared, rows, seed=seed) if labelled > 1 else None
    leaked = explained = None
    if train is None or train.presence is None or not (train.label >= 0).any():
        notes.append("the training cases are not at hand: leakage, and what concepts explain, cannot be fitted")
    else:
        leaked = leakage(train, said, resamples=resamples, seed=seed) if labelled else None
        explained = explained_by_concepts(train, said)
    overall = {name: each for name, each in scores.concepts.items() if each.value is not None}
    found = ConceptAudit(overall, scores.by_concept, scores.present, curves, leaked, shuffled, explained)
    return found, notes


def _decides_by_concepts(model: nn.Module) -> bool:
    return any(isinstance(module, Bottleneck) for module in model.modules())
