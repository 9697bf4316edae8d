"""Maps of several methods over the same cases, and all that is measured of them, batch by batch."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch import Tensor

from parsecaps.audit.cases import About, AuditCases, CaseMasks
from parsecaps.audit.faithfulness import (
    GRID,
    CurveMeasures,
    Curves,
    Faithfulness,
    cover,
    curves_of_targets,
    join_curves,
    random_curves,
    region_curves,
    region_order,
    summarise_curves,
)
from parsecaps.audit.localisation import Localisation, MapMeasures, join, localise, measure_maps
from parsecaps.audit.randomisation import Randomised, randomise_cascade, summarise_cascade
from parsecaps.explain.attribution import Target, attribution_maps, has_routes
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.types import StageCallback, silent

DIAGNOSIS = "diagnosis"
METHODS = {  # by the name that an audit gives it
    "routes": "routes",
    "grad-cam": "grad-cam",
    "integrated gradients": "integrated-gradients",
    "occlusion": "occlusion",
}

MapMaker = Callable[[PretrainedModel, Tensor, Sequence[Target]], Tensor]  # as `attribution_maps`


@dataclass(frozen=True)
class MapAudit:
    """What was measured of the maps of one method; None where the data or the model do not allow it."""

    localisation: Localisation | None
    faithfulness: Faithfulness | None
    randomised: Randomised | None


def map_makers(model: PretrainedModel) -> dict[str, MapMaker]:
    """The methods that an audit compares, by name; the routes first, where the model has any."""
    return {
        name: partial(attribution_maps, method=method)
        for name, method in METHODS.items()
        if method != "routes" or has_routes(model)
    }


def audit_maps(
    cases: AuditCases,
    makers: Mapping[str, MapMaker],
    masks: CaseMasks,
    *,
    sanity_cases: int,
    needed: Mapping[About, np.ndarray],
    resamples: int = 1000,
    seed: int = 0,
    progress: StageCallback = silent,
) -> dict[About, dict[str, MapAudit]]:
    """Measure the maps of each method, by name, over these cases; `needed` as in `localisation.localise`.

    A map is made where a case has the target, or a mask of it. The first `sanity_cases` are explained again by networks
    made random.
    """
    kinds: list[About] = ["concepts", "classes"] if cases.bundle.concepts else ["classes"]
    located: dict[tuple[About, str], list[MapMeasures]] = {(about, name): [] for about in kinds for name in makers}
    curves: dict[str, list[CurveMeasures]] = {name: [] for name in makers}
    pairs: list[tuple[int, Target]] = []  # of a case and a target
    sanity = _Explained({name: [] for name in makers})
    generator = np.random.default_rng(seed)
    progress("maps", 0, len(cases))
    for batch, image in cases.batches():
        targets = cases.targets(batch, cases.values(image))
        truth = {about: masks.of(about, cases.rows_of(batch)) for about in kinds}
        wanted = _with_masked(targets, truth.get("concepts"))
        made = {name: dense_maps(cases, maker, image, wanted) for name, maker in makers.items()}
        diagnosis = [cases.column(each[-1]) for each in targets]
        for about, mask in truth.items():
            for name, maps in made.items():
                if mask is not None:
                    shown = maps[range(len(batch)), diagnosis, None] if about == "classes" else maps[:, : mask.shape[1]]
                    located[about, name].append(measure_maps(shown.double().cpu().numpy(), mask))
        case = [i for i, each in enumerate(targets) for _ in each]
        column = [cases.column(target) for each in targets for target in each]
        pairs += [(batch[i], target) for i, each in enumerate(targets) for target in each]
        chance = _chance(targets, [seed, batch.start])
        covered = cover(image)
        random = random_curves(cases.values, image, covered, generator)
        orders = torch.cat([region_order(maps[case, column], chance) for maps in made.values()])
        found = region_curves(cases.values, image, covered, case * len(makers), orders)  # one call fills the batches
        for name, *each in zip(makers, *(torch.split(curve, len(case)) for curve in found), strict=True):
            curves[name].append(curves_of_targets(Curves(*each), random, case, column))
        sanity.add(image, targets, {name: maps[case, column] for name, maps in made.items()}, sanity_cases)
        progress("maps", batch.stop, len(cases))
    randomised = randomise_cascade(
        cases.model,
        {name: partial(sanity.maps_of, maker) for name, maker in makers.items()},
        {name: torch.cat(maps) for name, maps in sanity.maps.items()},
        seed=seed,
        progress=partial(progress, "parameter randomisation"),
    )
    options = {"resamples": resamples, "seed": seed}
    audits: dict[About, dict[str, MapAudit]] = {}
    for about in kinds:
        own = [i for i, (_, target) in enumerate(pairs) if target.about == about]
        group = cases.group[[pairs[i][0] for i in own]]
        checked = [i for i in own if pairs[i][0] < sanity_cases]
        names = [DIAGNOSIS] if about == "classes" else list(cases.bundle.concepts)
        located_by = {name: located[about, name] for name in makers}
        audits[about] = {
            name: MapAudit(
                localise(join(found), cases.group, names, needed=needed.get(about), **options) if found else None,
                summarise_curves(join_curves(curves[name], own), group, **options) if own else None,
                summarise_cascade(randomised[name].of(checked), group[: len(checked)], **options) if checked else None,
            )
            for name, found in located_by.items()
        }
    return audits


@dataclass
class _Explained:
    """The first cases with their targets, and the maps that each method made of them: lists of (P, H, W)."""

    maps: dict[str, list[Tensor]]
    image: list[Tensor] = field(default_factory=list)
    targets: list[list[Target]] = field(default_factory=list)

    def add(self, image: Tensor, targets: Sequence[list[Target]], maps: Mapping[str, Tensor], limit: int) -> None:
        """Keep what belongs to the first `limit` cases."""
        few = targets[: max(0, limit - len(self.image))]
        self.image += [image[i : i + 1] for i in range(len(few))]
        self.targets += few
        for name, each in maps.items():
            self.maps[name].append(each[: sum(map(len, few))])

    def maps_of(self, maker: MapMaker, model: PretrainedModel) -> Tensor:
        """The same maps by another model."""
        return torch.cat([maker(model, *each)[0] for each in zip(self.image, self.targets, strict=True)])


def dense_maps(cases: AuditCases, maker: MapMaker, image: Tensor, targets: Sequence[Sequence[Target]]) -> Tensor:
    """The maps of each image's targets in their columns, 0 in all others: (n, columns, H, W)."""
    columns = len(cases.bundle.concepts) + len(cases.bundle.classes)
    maps = image.new_zeros(len(image), columns, *image.shape[2:])
    for i, (single, asked) in enumerate(zip(torch.split(image, 1), targets, strict=True)):
        if asked:
            columns_of = [cases.column(target) for target in asked]
            maps[i, columns_of] = maker(cases.model, single, asked)[0].detach().to(maps)
    return maps


def _with_masked(targets: Sequence[list[Target]], masks: np.ndarray | None) -> list[list[Target]]:
    """The targets of each image, and the concepts that have a mask in it besides."""
    if masks is None:
        return list(targets)
    has = [[Target("concepts", int(j)) for j in np.flatnonzero(each)] for each in np.asarray(masks.any((2, 3)))]
    return [[*own, *(each for each in masked if each not in own)] for own, masked in zip(targets, has, strict=True)]


def _chance(targets: Sequence[Sequence[Target]], seed: Sequence[int]) -> np.ndarray:
    """What decides between equal regions of each map, for concepts and for classes from the same seed: (P, regions)."""
    about = np.array([target.about for each in targets for target in each])
    chance = np.empty((len(about), GRID**2))
    for kind in np.unique(about):
        own = about == kind
        chance[own] = np.random.default_rng(seed).random((own.sum(), GRID**2))
    return chance
