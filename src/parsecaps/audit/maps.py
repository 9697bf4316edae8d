"""Maps of several methods over the same cases, and all that is measured of them, batch by batch.

Localisation: pointing game, relevance mass and IoU against masks, over the cases in which there is something to find.
What is below 0 counts as nothing. A blank map (the same everywhere, or not a number) misses, and is counted.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from parsecaps.audit.audit_cases import About, AuditCases, Average, CaseMasks, joined
from parsecaps.audit.faithfulness import (
    GRID,
    CurveMeasures,
    Curves,
    Faithfulness,
    Randomised,
    cover,
    curves_of_targets,
    random_curves,
    randomise_cascade,
    region_curves,
    region_order,
    summarise_cascade,
    summarise_curves,
)
from parsecaps.explain.attribution import Target, attribution_maps, has_routes
from parsecaps.metrics import Score
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.types import StageCallback, silent

THRESHOLDS = np.linspace(0.02, 0.98, 49)  # of a map scaled to a maximum of 1


class MapMeasures(NamedTuple):
    """What is measured of each map; NaN where the mask is empty.

    Shapes:
        - pointing, mass, share, blank: (N, K); overlap: (N, K, thresholds)
    """

    pointing: np.ndarray
    mass: np.ndarray
    share: np.ndarray
    blank: np.ndarray
    overlap: np.ndarray


@dataclass(frozen=True)
class TargetLocalisation:
    """How well the maps of one concept (or of the diagnosis) find it, over the cases that have it.

    `pointing`: how often the highest point lies inside the mask. `mass`: the share of the map inside it. `share`: that
    of the image which the mask covers. `ratio`: the mean mass over the mean share. `iou`: the mean overlap with the
    mask of what is above `threshold` times a map's maximum, the best for all cases. `blank` counts blank maps.
    """

    name: str
    pointing: Score
    mass: Score
    share: Score
    ratio: Score
    iou: Score
    threshold: float | None
    blank: int


@dataclass(frozen=True)
class Localisation:
    """Each target, and the means over targets; `needed` counts only cases where the model needs to see it."""

    targets: list[TargetLocalisation]
    pointing: Score
    needed: Score | None  # see `audit.inpainting`
    mass: Score
    ratio: Score
    iou: Score


def measure_maps(maps: np.ndarray, masks: np.ndarray) -> MapMeasures:
    """Measure maps against masks; where several pixels share the maximum, the share of them that are inside counts.

    Shapes:
        - maps: (N, K, H, W), of which only those with a mask are looked at; masks: the same, bool
    """
    present = np.asarray(masks.any((2, 3)))
    inside = masks[present].reshape(-1, masks[0, 0].size)  # (n, pixels)
    flat = maps[present].reshape(inside.shape).astype(np.float64)
    evidence = np.where(np.isfinite(flat).all(1, keepdims=True), np.maximum(flat, 0), 0)
    highest, total = evidence.max(1), evidence.sum(1)
    blank = highest <= evidence.min(1)
    at_top = evidence == highest[:, None]
    hit = np.where(blank, 0, (at_top & inside).sum(1) / at_top.sum(1))
    mass = np.where(blank, 0, (evidence * inside).sum(1) / np.where(total > 0, total, 1))
    overlap = _overlap(evidence / np.where(highest > 0, highest, 1)[:, None], inside)
    overlap[blank] = 0
    found = []
    for values in (hit, mass, inside.mean(1), blank, overlap):
        everywhere = np.full((*present.shape, *values.shape[1:]), np.nan)
        everywhere[present] = values
        found.append(everywhere)
    return MapMeasures(*found)


def localise(
    measured: MapMeasures, average: Average, names: Sequence[str], *, needed: np.ndarray | None = None
) -> Localisation:
    """Scores over the cases that have each target; `needed` (N, K) is 1 where the model needs to see it."""
    pointing, mass, share = (average(each) for each in (measured.pointing, measured.mass, measured.share))
    ratio = mass.over(share)
    best: list[int | None] = []  # which threshold gives the most, over the cases that have a mask
    for overlap in np.moveaxis(measured.overlap, 1, 0):  # (N, thresholds)
        there = ~np.isnan(overlap[:, 0])
        best.append(int(overlap[there].mean(0).argmax()) if there.any() else None)
    columns = [measured.overlap[:, k, t or 0] for k, t in enumerate(best)]
    iou = average(np.stack(columns, axis=1) if columns else measured.pointing)
    rows = zip(*(each.scores() for each in (pointing, mass, share, ratio, iou)), strict=True)
    thresholds = [None if chosen is None else float(THRESHOLDS[chosen]) for chosen in best]
    blank = np.nansum(measured.blank, 0).astype(int).tolist()
    targets = [
        TargetLocalisation(name, *scores, *others)
        for name, scores, *others in zip(names, rows, thresholds, blank, strict=True)
    ]
    where_needed = None if needed is None else average(np.where(needed == 1, measured.pointing, np.nan)).mean()
    return Localisation(targets, pointing.mean(), where_needed, mass.mean(), ratio.mean(), iou.mean())


def _overlap(scaled: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Intersection over union of mask and map above each threshold: (n, pixels) -> (n, thresholds)."""
    level = np.searchsorted(THRESHOLDS, scaled, side="right")  # how many thresholds each pixel reaches
    result = np.empty((len(scaled), len(THRESHOLDS)))
    for i in range(len(scaled)):
        counts = [np.bincount(each, minlength=len(THRESHOLDS) + 1) for each in (level[i], level[i][inside[i]])]
        reached, both = (count[::-1].cumsum()[::-1][1:] for count in counts)
        result[i] = both / np.maximum(inside[i].sum() + reached - both, 1)
    return result


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
    progress: StageCallback = silent,
) -> dict[About, dict[str, MapAudit]]:
    """Measure the maps of each method where a case has the target or a mask of it; `needed` as in `localise`."""
    kinds = cases.kinds
    located: dict[tuple[About, str], list[MapMeasures]] = {(about, name): [] for about in kinds for name in makers}
    curves: dict[str, list[CurveMeasures]] = {name: [] for name in makers}
    pairs: list[tuple[int, Target]] = []  # of a case and a target
    sanity: list[tuple[Tensor, list[Target]]] = []  # the first cases, with what is explained in them
    own_maps: dict[str, list[Tensor]] = {name: [] for name in makers}  # of these, (P, H, W)
    generator = np.random.default_rng(cases.seed)
    for batch, image in cases.batches(partial(progress, "maps")):
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
        chance = _chance(targets, [cases.seed, batch.start])
        covered = cover(image)
        random = random_curves(cases.values, image, covered, generator)
        orders = torch.cat([region_order(maps[case, column], chance) for maps in made.values()])
        found = region_curves(cases.values, image, covered, case * len(makers), orders)  # one call fills the batches
        for name, *each in zip(makers, *(torch.split(curve, len(case)) for curve in found), strict=True):
            curves[name].append(curves_of_targets(Curves(*each), random, case, column))
        first = targets[: max(0, sanity_cases - batch.start)]
        sanity += zip(torch.split(image, 1), first, strict=False)
        for name, maps in made.items():
            own_maps[name].append(maps[case, column][: sum(map(len, first))])

    def explain_again(maker: MapMaker, model: PretrainedModel) -> Tensor:
        return torch.cat([maker(model, *each)[0] for each in sanity])

    randomised = randomise_cascade(
        cases.network,
        {name: partial(explain_again, maker) for name, maker in makers.items()},
        {name: torch.cat(maps) for name, maps in own_maps.items()},
        seed=cases.seed,
        progress=partial(progress, "parameter randomisation"),
    )
    audits: dict[About, dict[str, MapAudit]] = {}
    for about in kinds:
        own = [i for i, (_, target) in enumerate(pairs) if target.about == about]
        case = [pairs[i][0] for i in own]
        checked = [i for i in own if pairs[i][0] < sanity_cases]
        names = ["diagnosis"] if about == "classes" else list(cases.model.concepts)
        average, few = cases.average(case), cases.average(case[: len(checked)])
        audits[about] = {
            name: MapAudit(
                localise(joined(found), cases.average(), names, needed=needed.get(about)) if found else None,
                summarise_curves(joined(curves[name], own), average) if own else None,
                summarise_cascade(randomised[name], few, checked) if checked else None,
            )
            for name, found in ((name, located[about, name]) for name in makers)
        }
    return audits


def dense_maps(cases: AuditCases, maker: MapMaker, image: Tensor, targets: Sequence[Sequence[Target]]) -> Tensor:
    """The maps of each image's targets in their columns, 0 in all others: (n, columns, H, W)."""
    columns = len(cases.model.concepts) + len(cases.model.classes)
    maps = image.new_zeros(len(image), columns, *image.shape[2:])
    for i, (single, asked) in enumerate(zip(torch.split(image, 1), targets, strict=True)):
        if asked:
            columns_of = [cases.column(target) for target in asked]
            maps[i, columns_of] = maker(cases.network, single, asked)[0].detach().to(maps)
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
