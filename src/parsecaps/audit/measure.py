"""How far the explanations of a model can be trusted: all that is measured, on a run's test part or on other data."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from torch import Tensor

from parsecaps.audit.ablation import (
    RouteAblation,
    RouteRelevance,
    audit_residuals,
    audit_routes,
    can_be_cut,
    compare_couplings,
    strict_cost,
)
from parsecaps.audit.audit_cases import About, AuditCases, CaseMasks, find_masks
from parsecaps.audit.concept_audit import audit_concepts
from parsecaps.audit.inpainting import Inpainted, measure_inpainted, summarise_inpainted
from parsecaps.audit.maps import MapMaker, audit_maps, map_makers
from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.audit.result import REDUNDANCY_CASES, Audit
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.sources import absolute, open_data
from parsecaps.explain.attribution import route_relevance
from parsecaps.explain.attribution_path import has_tree
from parsecaps.explain.strict_tree import load_statistics
from parsecaps.metrics import Comparison
from parsecaps.metrics.bootstrap import few_patients
from parsecaps.metrics.predictions import Predictions
from parsecaps.model import Model
from parsecaps.nn.recorder import couplings_of
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from parsecaps.types import StageCallback, silent

LIMIT = 200  # cases with maps; fewer for what is slower still
SANITY_CASES = 8
ROUTE_CASES = 48
INPAINTED_CASES = 600


def audit(
    model: Model,
    cases: CaseSet,
    *,
    maps: Mapping[str, MapMaker] | None = None,
    masks: CaseMasks | None = None,
    routes: RouteRelevance | None = None,
    train: Predictions | None = None,
    statistics: Mapping[str, Tensor] | None = None,
    limit: int = LIMIT,
    resamples: int = 1000,
    seed: int = 0,
    progress: StageCallback = silent,
) -> Audit:
    """Measure the explanations of a model on these cases, whose images were prepared as the model says.

    `maps` are the methods to compare, by name (`map_makers`), `routes` says what each route brought
    (`route_relevance`), `masks` are those of the data (`find_masks`). `statistics` are those of the strict tree,
    `train` the predictions of the training cases. At most `limit` cases, drawn at random, get maps.
    """
    if not len(cases):
        raise ValueError(f"{cases.data.root} has no cases to audit on; give at least one")
    _check_limit(limit)
    masks = find_masks(cases.data, model) if masks is None else masks
    progress("predictions", 0, len(cases))
    predictions = predict_cases(model, cases, progress=partial(progress, "predictions"))
    order = np.random.default_rng(seed).permutation(len(cases))
    options = {"resamples": resamples, "seed": seed}
    inpainted = AuditCases(model, cases.subset(order[: max(limit, INPAINTED_CASES)]), **options)
    mapped = inpainted.first(limit)
    hidden: dict[About, Inpainted] = {}
    needed: dict[About, np.ndarray] = {}
    for about in mapped.kinds:
        stage = partial(progress, f"inpainted {about}")
        if (measured := measure_inpainted(inpainted, about, masks, predictions.label[order], stage)) is not None:
            needed[about] = measured.needed[: len(mapped)]
            if (found := summarise_inpainted(measured, inpainted, about)) is not None:
                hidden[about] = found
    makers = map_makers(model.network) if maps is None else maps
    found_maps = audit_maps(mapped, makers, masks, sanity_cases=SANITY_CASES, needed=needed, progress=progress)
    ablations: dict[About, RouteAblation] = {}
    strict = residuals = None
    few = mapped.first(ROUTE_CASES)
    if can_be_cut(model.network):
        ablations = audit_routes(few, routes or route_relevance, partial(progress, "route ablation"))
    couplings: dict[str, Comparison] = {}
    if couplings_of(model.network) and len(cases) > 1 and (predictions.label >= 0).any():
        stage = partial(progress, "other couplings")
        couplings = compare_couplings(model, cases, predictions, progress=stage, **options)
    if has_tree(model.network):
        residuals = audit_residuals(few, partial(progress, "shares"))
        stage = partial(progress, "strict tree")
        strict = strict_cost(model, cases, predictions, statistics=statistics, progress=stage, **options)
    progress("concepts", 0, 1)
    concepts, notes = audit_concepts(model, cases, predictions, train, **options)
    progress("concepts", 1, 1)
    progress("redundancy", 0, 1)
    redundancy = capsule_similarity(model.network, (image for _, image in mapped.first(REDUNDANCY_CASES).batches()))
    progress("redundancy", 1, 1)
    notes = [*few_patients(len(np.unique(mapped.group))), *notes]
    if masks.concepts is None and masks.lesion is None:
        notes.append("the data have no masks: whether maps point at the right place cannot be said")
    if not ablations:
        notes.append(f"no routes were cut: none are known of this {type(model.network).__name__}")
    return Audit(
        model=type(model.network).__name__,
        data=cases.data.root.name,
        cases=len(cases),
        patients=len(np.unique(predictions.groups())),
        mapped=len(mapped),
        resamples=resamples,
        seed=seed,
        masks=masks.known,
        maps=found_maps,
        hidden=hidden,
        routes=ablations,
        couplings=couplings,
        concepts=concepts,
        residuals=residuals,
        strict=strict,
        redundancy=redundancy,
        notes=notes,
    )


def audit_model(
    place: Run | str | Path,
    data: str | None = None,
    *,
    limit: int = LIMIT,
    resamples: int = 1000,
    seed: int = 0,
    device: str = "auto",
    progress: StageCallback = silent,
) -> Audit:
    """Audit the model of a run on the test part of its own data, or on all cases of other `data`."""
    _check_limit(limit)
    place = place.folder if isinstance(place, Run) else place
    run, model = Run(place, reading=partial(progress, "reading images")), Model.load(place, device)
    own = run.is_there and (data is None or absolute(data) == run.config.data.path)
    if own and not run.rows("test"):
        raise ValueError(f"{place} has no test part to audit on; give other data")
    if not own and data is None:
        raise ValueError(f"{place} is not a run, so it has no data of its own; name the data to audit on")
    others = None if own else open_data(str(data))
    train: Predictions | None = None
    if run.is_there:
        learned, stage = run.cases("train"), partial(progress, "training cases")
        stage(0, len(learned))
        train = predict_cases(model, learned, progress=stage)
    if others is None:
        cases = run.cases("test")
    else:
        reading = partial(progress, "reading images")
        cases = CaseSet(others, prepare_all(others, model.preparation, skip_bad=True, progress=reading))
    assert model.folder is not None
    return audit(
        model,
        cases,
        train=train,
        statistics=load_statistics(model.folder, model.network),
        limit=limit,
        resamples=resamples,
        seed=seed,
        progress=progress,
    )


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit is {limit}; give at least 1 case")
