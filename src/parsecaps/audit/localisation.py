"""Localisation: is what a map shows where the thing is? Pointing game, relevance mass and IoU against masks.

Measured over the cases in which there is something to find.

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

    `needed` is the pointing game over the cases in which the model needs to see the target (`audit.inpainting`), None
    if that was not asked: where it decides by something else, a map that is true points elsewhere.
    """

    targets: list[TargetLocalisation]
    pointing: Score
    needed: Score | None
    mass: Score
    ratio: Score
    iou: Score


def measure_maps(maps: np.ndarray, masks: np.ndarray) -> MapMeasures:
    """Measure maps against masks; where several pixels share the maximum, the share of them that are inside counts.

    Shapes:
        - maps: (N, K, H, W), of which only those with a mask are looked at; masks: the same, bool
    """
    if maps.shape != masks.shape:
        raise ValueError(f"maps are {maps.shape} and masks {masks.shape}; give a mask of the same size for each map")
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
    """Intersection over union of mask and map above each threshold: (n, pixels) -> (n, thresholds)."""
    bins = len(THRESHOLDS) + 1
    level = np.searchsorted(THRESHOLDS, scaled, side="right")  # how many thresholds each pixel reaches
    result = np.empty((len(scaled), len(THRESHOLDS)))
    for i in range(len(scaled)):
        reached, both = _reaching(level[i], bins), _reaching(level[i][inside[i]], bins)
        result[i] = both / np.maximum(inside[i].sum() + reached - both, 1)
    return result


def _reaching(level: np.ndarray, bins: int) -> np.ndarray:
    """How many pixels reach each threshold."""
    return np.bincount(level, minlength=bins)[::-1].cumsum()[::-1][1:]
