"""How far the explanations of a model can be trusted, measured on a data set: maps of several methods side by side,
lesions hidden, routes, concepts, and how alike capsules are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from torch import Tensor

from parsecaps.audit.concepts import ConceptAudit, audit_concepts
from parsecaps.audit.maps import Cases, MapAudit, MapMaker, RoutesOf, audit_maps, audit_routes
from parsecaps.audit.masks import CaseMasks, find_masks
from parsecaps.audit.occluded_lesions import Hidden, measure_hidden, summarise_hidden
from parsecaps.audit.redundancy import LayerSimilarity, capsule_similarity
from parsecaps.audit.route_ablation import RouteAblation
from parsecaps.audit.strict_cost import StrictCost, strict_cost
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.explain.targets import About
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import predict_cases
from parsecaps.prediction.predictions import Predictions

LIMIT = 200  # cases with maps; fewer for what is slower still
SANITY_CASES = 8
ROUTE_CASES = 48
HIDDEN_CASES = 600
REDUNDANCY_CASES = 64

Progress = Callable[[str, int, int], None]  # what is done, of how many cases, of all


@dataclass(frozen=True)
class Audit:
    """All that was measured of a model's explanations.

    `maps` and `routes` are by what is explained ("concepts", "classes"), `maps` then by method. `mapped` of the `cases`
    were explained by maps. `masks` says what maps were compared with. `hidden` is what is still found with it painted
    over, where there are masks. `strict` is what a strict tree costs, None without routes. `notes` say what to know,
    what could not be measured, and why.
    """

    model: str
    data: str
    cases: int
    patients: int
    mapped: int
    resamples: int
    seed: int
    masks: str
    maps: dict[About, dict[str, MapAudit]]
    hidden: dict[About, Hidden]
    routes: dict[About, RouteAblation]
    concepts: ConceptAudit | None
    strict: StrictCost | None
    redundancy: list[LayerSimilarity]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return asdict(self)


def audit(
    bundle: Bundle,
    data: DataSet,
    prepared: PreparedImages,
    rows: Sequence[int],
    *,
    maps: Mapping[str, MapMaker],
    masks: CaseMasks | None = None,
    routes: RoutesOf | None = None,
    train: Predictions | None = None,
    statistics: Mapping[str, Tensor] | None = None,
    notes: Sequence[str] = (),
    limit: int = LIMIT,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda what, done, total: None,
) -> Audit:
    """Measure the explanations of a model on these cases of a data set, whose images were prepared as the bundle says.

    `maps` are the methods to compare, by name. `masks` are those of the data if left out. `routes` gives what each
    route brought, for models that route; `statistics` are those of its strict tree (`explain.strict_tree`). `train` is
    what the model said of its training cases (`predict_cases`).
    `notes` are what a reader has to know beforehand. At most `limit` cases, drawn at random, get maps. The same
    arguments give the same numbers.
    """
    if not rows:
        raise ValueError(f"{data.root} has no cases to audit on; give at least one")
    if limit < 1:
        raise ValueError(f"limit is {limit}; give at least 1 case")
    masks = find_masks(data, bundle) if masks is None else masks
    said = predict_cases(bundle, data, prepared, rows, progress=lambda done, total: progress("predicting", done, total))
    order = np.random.default_rng(seed).permutation(len(rows))
    cases = Cases(bundle, data, prepared, [rows[i] for i in order[:limit]])
    painted = Cases(bundle, data, prepared, [rows[i] for i in order[: max(limit, HIDDEN_CASES)]])
    options = {"resamples": resamples, "seed": seed}
    kinds: list[About] = ["concepts", "classes"] if bundle.concepts else ["classes"]
    found_maps: dict[About, dict[str, MapAudit]] = {}
    found_hidden: dict[About, Hidden] = {}
    found_routes: dict[About, RouteAblation] = {}
    for about in kinds:

        def tell(done: int, total: int, about: About = about) -> None:
            progress(f"maps of {about}", done, total)

        def tell_hidden(done: int, total: int, about: About = about) -> None:
            progress(f"{about} hidden", done, total)

        def tell_routes(done: int, total: int, about: About = about) -> None:
            progress(f"routes to {about}", done, total)

        hidden = measure_hidden(painted, about, masks, said.label[order], seed=seed, progress=tell_hidden)
        needed = None
        if hidden is not None:
            needed = hidden.needed[: len(cases.rows)]
            summary = summarise_hidden(hidden, painted, about, **options)
            if summary is not None:
                found_hidden[about] = summary
        found_maps[about] = audit_maps(
            cases, about, maps, masks, sanity_cases=SANITY_CASES, needed=needed, progress=tell, **options
        )
        if routes is not None:
            ablation = audit_routes(cases.first(ROUTE_CASES), about, routes, progress=tell_routes, **options)
            if ablation is not None:
                found_routes[about] = ablation
    concepts, unknown = audit_concepts(bundle, data, prepared, rows, said, train, **options)
    strict = None
    if routes is not None:

        def tell_strict(done: int, total: int) -> None:
            progress("strict tree", done, total)

        strict = strict_cost(bundle, data, prepared, rows, said, statistics=statistics, progress=tell_strict, **options)
    few = cases.first(REDUNDANCY_CASES)
    redundancy = capsule_similarity(bundle.model, (few.image(batch) for batch in few.batches()))
    if masks.concepts is None and masks.lesion is None:
        unknown.append("the data have no masks: whether maps point at the right place cannot be said")
    if routes is None:
        unknown.append(f"no routes were cut: none are known of this {type(bundle.model).__name__}")
    return Audit(
        model=type(bundle.model).__name__,
        data=str(data.root),
        cases=len(rows),
        patients=len(np.unique(said.groups())),
        mapped=len(cases.rows),
        resamples=resamples,
        seed=seed,
        masks=masks.known,
        maps=found_maps,
        hidden=found_hidden,
        routes=found_routes,
        concepts=concepts,
        strict=strict,
        redundancy=redundancy,
        notes=[*notes, *unknown],
    )
