"""Does a model need to see the thing itself? Lesions and concepts painted over, case by case.

A map can only point at a lesion if the decision rests on it. Where a diagnosis stays right without the lesion, its
reasons lie elsewhere, and a map that still showed the lesion would be untrue. For comparison another place of the same
shape is painted over: so much any change of the image costs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from parsecaps.audit.faithfulness import Values, target_values
from parsecaps.audit.inpainting import another_place, paint_over, widened
from parsecaps.audit.maps import Cases
from parsecaps.audit.masks import CaseMasks
from parsecaps.explain.targets import About
from parsecaps.metrics import THRESHOLD, Score, means

Progress = Callable[[int, int], None]


class HiddenMeasures(NamedTuple):
    """What became of each case; NaN where nothing was painted over.

    Shapes:
        - found: (3, N, K), whether each class was diagnosed or concept seen in the cases that have it: shown, hidden,
          and with another place hidden
        - needed: (N, concepts or 1), whether the model no longer sees a concept, or diagnoses otherwise, when hidden
    """

    found: np.ndarray
    needed: np.ndarray


@dataclass(frozen=True)
class HiddenTarget:
    """How often a class is diagnosed, or a concept seen, in the cases that have it and a mask of it.

    `shown`: in the images as they are. `hidden`: with the mask painted over. `elsewhere`: with another place painted
    over, in the cases where one was found.
    """

    name: str
    shown: Score
    hidden: Score
    elsewhere: Score


@dataclass(frozen=True)
class Hidden:
    """Each class or concept by itself; `overall` is over all cases for classes, the mean over the concepts else."""

    overall: HiddenTarget
    targets: list[HiddenTarget]


def measure_hidden(
    cases: Cases,
    about: About,
    masks: CaseMasks,
    label: np.ndarray,
    *,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> HiddenMeasures | None:
    """Paint over what each case has a mask of, and look again; None where there are no masks.

    `label` (N,) has the classes, -1 = unknown: such a case takes part in `needed` alone.
    """
    find = masks.concepts if about == "concepts" else masks.lesion
    if find is None:
        return None
    names = _names(cases, about)
    values, random = target_values(cases.model, about), np.random.default_rng(seed)
    found = np.full((3, len(cases.rows), len(names)), np.nan)
    needed = np.full((len(cases.rows), len(names) if about == "concepts" else 1), np.nan)
    for batch in cases.batches():
        image = cases.image(batch).double().cpu().numpy()
        inside = find([cases.rows[i] for i in batch])
        if about == "classes":
            inside = inside[:, None]
        wanted = inside.any((2, 3)) & (about == "classes" or cases.truth(batch) == 1)
        for i, k in np.argwhere(wanted):
            mask = widened(inside[i, k])
            if mask.all():
                continue
            other = another_place(image[i], mask, random)
            places = [mask] if other is None else [mask, other]
            given = _given(values, cases, [image[i], *(paint_over(image[i], place) for place in places)])
            if about == "concepts":
                seen = given[:, k] > THRESHOLD
                found[: len(seen), batch[i], k] = seen
                needed[batch[i], k] = seen[0] and not seen[1]
            else:
                said, truth = given.argmax(1), label[batch[i]]
                if truth >= 0:
                    found[: len(said), batch[i], truth] = said == truth
                needed[batch[i], 0] = said[0] != said[1]
        progress(batch.stop, len(cases.rows))
    return HiddenMeasures(found, needed)


def summarise_hidden(
    measured: HiddenMeasures, cases: Cases, about: About, *, resamples: int = 1000, seed: int = 0
) -> Hidden | None:
    """Scores of each class or concept, with 95 % intervals over patients; None if none was hidden."""
    if np.isnan(measured.found).all():
        return None
    columns = [means(each, cases.group, resamples=resamples, seed=seed) for each in measured.found]
    by_target = zip(_names(cases, about), *(each.scores() for each in columns), strict=True)
    if about == "classes":
        overall = [
            means(_one(each), cases.group, resamples=resamples, seed=seed).scores()[0] for each in measured.found
        ]
    else:
        overall = [each.mean() for each in columns]
    return Hidden(HiddenTarget("all", *overall), [HiddenTarget(*each) for each in by_target])


def _names(cases: Cases, about: About) -> tuple[str, ...]:
    return cases.bundle.concepts if about == "concepts" else cases.bundle.classes


def _given(values: Values, cases: Cases, images: Sequence[np.ndarray]) -> np.ndarray:
    """The values of images (channels, H, W): (images, classes or concepts)."""
    return values(torch.from_numpy(np.stack(images)).float().to(cases.device)).cpu().numpy()


def _one(found: np.ndarray) -> np.ndarray:
    """The only value that each case has, NaN where it has none: (N, classes) -> (N, 1)."""
    known = ~np.isnan(found)
    return np.where(known.any(1), np.where(known, found, 0).sum(1), np.nan)[:, None]
