"""An audit with everything in it, from random numbers instead of a model."""

from functools import partial

import numpy as np

from parsecaps.audit.ablation import SHARES, CutMeasures, Residuals, RouteAblation, summarise_cuts
from parsecaps.audit.concept_audit import Completeness, ConceptAudit, InterventionCurve, Leakage, PermutedConcepts
from parsecaps.audit.faithfulness import CascadeMeasures, CurveMeasures, summarise_cascade, summarise_curves
from parsecaps.audit.inpainting import Inpainted, InpaintedTarget
from parsecaps.audit.maps import MapAudit, localise, measure_maps
from parsecaps.audit.redundancy import NUM_BINS, LayerSimilarity
from parsecaps.audit.result import Audit
from parsecaps.explain.strict_tree import Paired, StrictCost
from parsecaps.metrics import Comparison, Score, means
from parsecaps.metrics.comparison import COMPARED, Difference

CASES = 12
NAMES = ("blue-whitish veil", "str<b>eaks")


def make_audit(*, resamples: int = 30) -> Audit:
    """Two methods on concepts and on the diagnosis; "good" is better than "poor" at everything."""
    score = Score(0.8, 0.7, 0.9, CASES)
    concepts = ConceptAudit(
        overall={"mean_auroc": score, "explanation_error_l2": Score(0.9, None, None, CASES)},
        by_concept={name: {"auroc": score, "f1": Score(None, None, None, 0)} for name in NAMES},
        present=dict.fromkeys(NAMES, 5),
        interventions=[
            InterventionCurve("uncertain", [0.7, 0.8, 0.9], [None] * 3, CASES),
            InterventionCurve("random", [0.7, 0.75, 0.9], [None] * 3, CASES),
        ],
        leakage=Leakage(Difference(0.8, 0.85, 0.05, -0.01, 0.1, 0.2), 0.5, 0.4, CASES),
        shuffled=PermutedConcepts(0.9, 0.5, 0.5, 0.0, CASES),
        explained=Completeness(0.95, 0.9, 0.6, 0.8, 0.9, CASES),
    )
    share = np.full(NUM_BINS, 1 / NUM_BINS).tolist()
    layers = [
        LayerSimilarity(*each, share, share, empty)
        for *each, empty in (("primary", 256, 8, 100, 0.1, 0.0), ("top", 1, 8, 0, None, 1))
    ]
    return Audit(
        model="ParseCaps",
        data="phantom",
        cases=20,
        patients=6,
        mapped=CASES,
        resamples=resamples,
        seed=0,
        masks="the pixels of each concept",
        maps={
            "concepts": {"good": _method(1.0, True, resamples), "poor": _method(0.2, True, resamples)},
            "classes": {"good": _method(1.0, False, resamples), "poor": _method(0.2, False, resamples)},
        },
        hidden={"concepts": Inpainted(_hidden("all"), [_hidden(name) for name in NAMES])},
        routes={"concepts": _cuts(resamples)},
        couplings={"uniform": make_comparison(0.5), "of another image": make_comparison(0.75)},
        concepts=concepts,
        residuals=Residuals(24, 0.001, 0.01, 0.02),
        strict=make_cost(),
        redundancy=layers,
        notes=["one thing could not be measured"],
    )


def make_cost(model: str = "0" * 16, *, adjusted: bool = True) -> StrictCost:
    """An accuracy that falls from 90 to 80 %."""
    pair = Paired(
        Score(0.9, 0.85, 0.95, CASES), Score(0.8, 0.7, 0.9, CASES), Difference(0.9, 0.8, -0.1, -0.2, -0.05, 0.01)
    )
    return StrictCost(pair, None, adjusted, model)


def make_comparison(second: float, first: float = 0.9) -> Comparison:
    """Every score falls from `first` to `second`, by 20 points to each side."""
    cost = second - first
    difference = Difference(first, second, cost, cost - 0.2, cost + 0.2, 0.01)
    return Comparison(CASES, 6, 0, 0, 0, 0, 1.0, dict.fromkeys(COMPARED, difference), 30, 0)


def _hidden(name: str) -> InpaintedTarget:
    return InpaintedTarget(name, Score(0.9, 0.8, 1.0, CASES), Score(0.25, 0.2, 0.3, CASES), Score(None, None, None, 0))


def _method(quality: float, masks: bool, resamples: int) -> MapAudit:
    random = np.random.default_rng(0)
    average = partial(means, group=np.arange(CASES) // 2, resamples=resamples)
    inside = np.zeros((CASES, 2, 8, 8), bool)
    inside[:, 0, 2:5, 2:5] = True
    inside[:6, 1, 5:, 5:] = True
    maps = random.random(inside.shape) + quality * inside
    falling = np.linspace(0.9, 0.2, 9)
    curves = CurveMeasures(*(np.tile(falling**p, (CASES, 1)) for p in (1 + quality, 1 - quality / 2, 1, 1)))
    likeness = np.clip(np.tile(np.linspace(0.9, 0, 4), (CASES, 1)) * (1.2 - quality), 0, 1)
    return MapAudit(
        localise(measure_maps(maps, inside), average, NAMES) if masks else None,
        summarise_curves(curves, average),
        summarise_cascade(CascadeMeasures(["classes", "norm", "primary", "initial"], likeness, likeness), average),
    )


def _cuts(resamples: int) -> RouteAblation:
    falling = np.tile(np.linspace(0.9, 0.2, 1 + len(SHARES)), (CASES, 1))
    measured = CutMeasures(falling**2, falling, falling**1.5)
    return summarise_cuts(measured, partial(means, group=np.arange(CASES), resamples=resamples))
