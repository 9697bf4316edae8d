"""Does a model need to see the thing itself? Lesions and concepts painted over, case by case.

A map can only point at a lesion if the decision rests on it. Where a diagnosis stays right without the lesion, its
reasons lie elsewhere, and a map that still showed the lesion would be untrue. For comparison another place of the same
shape is painted over: so much any change of the image costs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from parsecaps.evaluation.means import means
from parsecaps.evaluation.score import Score
from parsecaps.evaluation.weighted import THRESHOLD
from parsecaps.explain.faithfulness import Values, target_values
from parsecaps.explain.map_audit import Cases
from parsecaps.explain.masks import CaseMasks
from parsecaps.explain.painting import another_place, paint_over, widened
from parsecaps.explain.targets import About

Progress = Callable[[int, int], None]


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


def hide(
    cases: Cases,
    about: About,
    masks: CaseMasks,
    label: np.ndarray,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> Hidden | None:
    """Paint over what each case has, and look again; `label` (N,) has the classes, -1 = unknown.

    None where no mask is of a known class or concept.
    """
    find = masks.concepts if about == "concepts" else masks.lesion
    names = cases.bundle.concepts if about == "concepts" else cases.bundle.classes
    if find is None:
        return None
    values, random = target_values(cases.model, about), np.random.default_rng(seed)
    found = np.full((3, len(cases.rows), len(names)), np.nan)  # shown, hidden, elsewhere
    for batch in cases.batches():
        image = cases.image(batch).double().cpu().numpy()
        inside = find([cases.rows[i] for i in batch])
        if about == "classes":
            has, inside = label[list(batch), None] == np.arange(len(names)), inside[:, None]
        else:
            has = cases.truth(batch) == 1
        for i, target in np.argwhere(has & inside.any((2, 3))):
            mask = widened(inside[i, target if about == "concepts" else 0])
            if mask.all():
                continue
            other = another_place(image[i], mask, random)
            places = [mask] if other is None else [mask, other]
            seen = [image[i], *(paint_over(image[i], place) for place in places)]
            found[: len(seen), batch[i], target] = _found(values, cases, seen, about, target)
        progress(batch.stop, len(cases.rows))
    if np.isnan(found).all():
        return None
    options = {"resamples": resamples, "seed": seed}
    columns = [means(each, cases.group, **options) for each in found]
    by_target = zip(names, *(each.scores() for each in columns), strict=True)
    if about == "classes":
        overall = [means(_one(each), cases.group, **options).scores()[0] for each in found]
    else:
        overall = [each.mean() for each in columns]
    return Hidden(HiddenTarget("all", *overall), [HiddenTarget(*each) for each in by_target])


def _found(values: Values, cases: Cases, images: Sequence[np.ndarray], about: About, target: int) -> np.ndarray:
    """Whether the model finds the target in each image (channels, H, W)."""
    given = values(torch.from_numpy(np.stack(images)).float().to(cases.device)).cpu().numpy()
    return np.asarray(given.argmax(1) == target if about == "classes" else given[:, target] > THRESHOLD)


def _one(found: np.ndarray) -> np.ndarray:
    """The only value that each case has, NaN where it has none: (N, classes) -> (N, 1)."""
    known = ~np.isnan(found)
    return np.where(known.any(1), np.where(known, found, 0).sum(1), np.nan)[:, None]
