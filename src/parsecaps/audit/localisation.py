"""Is what a map shows where the thing is? Maps against masks, over the cases in which there is something to find.

Maps are of evidence: what is below 0 counts as nothing. A map that is blank (0 or the same everywhere, or not a number)
shows nothing, so it misses and has no mass inside; it is counted, not left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from parsecaps.metrics import Means, Score, means

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
    of the image which the mask covers, so what a map without a clue has inside. `ratio`: the mean mass over the mean
    share. `iou`: the mean overlap with the mask of what is above `threshold` times a map's maximum; one threshold for
    all cases of the target, the one that gives the most. `blank` counts the maps that show nothing.
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
    """Each target by itself, and the means over targets.

    `needed` is the pointing game over the cases in which the model needs to see the target (`explain.hidden`), None if
    that was not asked: where it decides by something else, a map that is true points elsewhere.
    """

    targets: list[TargetLocalisation]
    pointing: Score
    needed: Score | None
    mass: Score
    ratio: Score
    iou: Score


def measure_maps(maps: np.ndarray, masks: np.ndarray, *, tolerance: float = 0.0) -> MapMeasures:
    """Measure maps against masks; `tolerance` is how many pixels beside the mask still count as a hit.

    Where several pixels share the maximum, the share of them that are inside counts.

    Shapes:
        - maps: (N, K, H, W); masks: the same, bool
    """
    if maps.shape != masks.shape:
        raise ValueError(f"maps are {maps.shape} and masks {masks.shape}; give a mask of the same size for each map")
    flat = np.nan_to_num(maps.reshape(*maps.shape[:2], -1).astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    odd = ~np.isfinite(maps).reshape(flat.shape).all(-1)
    evidence = np.where(odd[..., None], 0, np.maximum(flat, 0))
    inside = masks.reshape(flat.shape).astype(bool)
    near = inside if tolerance <= 0 else _widened(masks, tolerance).reshape(flat.shape)
    present = np.asarray(inside.any(-1))
    highest, total = evidence.max(-1), evidence.sum(-1)
    blank = np.asarray(highest <= evidence.min(-1))
    at_top = evidence == highest[..., None]
    hit = np.where(blank, 0, (at_top & near).sum(-1) / at_top.sum(-1))
    mass = (evidence * inside).sum(-1) / np.where(total > 0, total, 1)
    overlap = _overlap(evidence / np.where(highest > 0, highest, 1)[..., None], inside)
    overlap[blank] = 0
    return MapMeasures(
        pointing=np.where(present, hit, np.nan),
        mass=np.where(present, np.where(blank, 0, mass), np.nan),
        share=np.where(present, inside.mean(-1), np.nan),
        blank=np.where(present, blank, np.nan),
        overlap=np.where(present[..., None], overlap, np.nan),
    )


def join(parts: Sequence[MapMeasures]) -> MapMeasures:
    """The measures of all batches, one below the other."""
    return MapMeasures(*(np.concatenate(each) for each in zip(*parts, strict=True)))


def localise(
    measured: MapMeasures,
    group: np.ndarray,
    names: Sequence[str],
    *,
    needed: np.ndarray | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> Localisation:
    """Scores over the cases that have each target, with 95 % intervals over patients (`group`: (N,)).

    `needed` (N, K) is 1 where the model needs to see the target.
    """

    def over_cases(values: np.ndarray) -> Means:
        return means(values, group, resamples=resamples, seed=seed)

    pointing, mass, share = (over_cases(each) for each in (measured.pointing, measured.mass, measured.share))
    ratio = mass.over(share)
    best = [_best_threshold(measured.overlap[:, k]) for k in range(len(names))]
    columns = [measured.overlap[:, k, t or 0] for k, t in enumerate(best)]
    iou = over_cases(np.stack(columns, axis=1) if columns else np.empty((len(group), 0)))
    rows = zip(pointing.scores(), mass.scores(), share.scores(), ratio.scores(), iou.scores(), strict=True)
    targets = []
    for k, (on_point, in_mass, in_share, in_ratio, in_iou) in enumerate(rows):
        chosen = best[k]
        targets.append(
            TargetLocalisation(
                name=names[k],
                pointing=on_point,
                mass=in_mass,
                share=in_share,
                ratio=in_ratio,
                iou=in_iou,
                threshold=None if chosen is None else float(THRESHOLDS[chosen]),
                blank=int(np.nansum(measured.blank[:, k])),
            )
        )
    where_needed = None if needed is None else over_cases(np.where(needed == 1, measured.pointing, np.nan)).mean()
    return Localisation(targets, pointing.mean(), where_needed, mass.mean(), ratio.mean(), iou.mean())


def _best_threshold(overlap: np.ndarray) -> int | None:
    """Which threshold gives the most mean overlap (N, thresholds) over the cases that have a mask."""
    there = ~np.isnan(overlap[:, 0])
    return int(overlap[there].mean(0).argmax()) if there.any() else None


def _overlap(scaled: np.ndarray, inside: np.ndarray) -> np.ndarray:
    """Intersection over union of mask and map above each threshold: (N, K, pixels) -> (N, K, thresholds)."""
    level = np.searchsorted(THRESHOLDS, scaled, side="right")  # how many thresholds each pixel reaches
    bins = len(THRESHOLDS) + 1
    result = np.empty((*scaled.shape[:2], len(THRESHOLDS)))
    for place in np.ndindex(scaled.shape[:2]):
        reached = _reaching(level[place], bins)
        both = _reaching(level[place][inside[place]], bins)
        result[place] = both / np.maximum(inside[place].sum() + reached - both, 1)
    return result


def _reaching(level: np.ndarray, bins: int) -> np.ndarray:
    """How many pixels reach each threshold."""
    return np.bincount(level, minlength=bins)[::-1].cumsum()[::-1][1:]


def _widened(masks: np.ndarray, tolerance: float) -> np.ndarray:
    from scipy.ndimage import distance_transform_edt

    wide = np.zeros(masks.shape, dtype=bool)
    for place in np.ndindex(masks.shape[:2]):
        if masks[place].any():
            wide[place] = distance_transform_edt(~masks[place].astype(bool)) <= tolerance
    return wide
