"""Inpainted lesions: does a model need to see the thing itself? Lesions and concepts are painted over, case by case.

Where a diagnosis stays right without the lesion, its reasons lie elsewhere, and a map that still showed the lesion
would be untrue. For comparison another place of the same shape is painted over: so much any change costs.

The pixels become the smoothest surface that joins those around them (Laplace's equation), which has no edge of its own.
`skimage.restoration.inpaint_biharmonic` takes three times as long and overshoots.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from scipy.ndimage import binary_dilation
from scipy.sparse import csr_array, diags_array, kronsum
from scipy.sparse.csgraph import laplacian
from scipy.sparse.linalg import splu

from parsecaps.audit.audit_cases import About, AuditCases, CaseMasks
from parsecaps.metrics import THRESHOLD, Score
from parsecaps.types import ProgressCallback, silent

_MARGIN = 0.02  # of the image's side: the rim of a thing is part of it
_TRIES = 64
_LEAST_DETAIL = 0.5  # of what lies under the mask
_FORWARD = 64  # images in one forward pass


class InpaintedMeasures(NamedTuple):
    """What became of each case; NaN where nothing was painted over.

    Shapes:
        - found: (3, N, K), whether each class was diagnosed or concept seen in the cases that have it: shown, hidden,
          and with another place hidden
        - needed: (N, concepts or 1), whether the model no longer sees a concept, or diagnoses otherwise, when hidden
    """

    found: np.ndarray
    needed: np.ndarray


@dataclass(frozen=True)
class InpaintedTarget:
    """How often a class or concept is found as it is, with its mask `hidden`, and with another place painted over."""

    name: str
    shown: Score
    hidden: Score
    elsewhere: Score


@dataclass(frozen=True)
class Inpainted:
    """Each class or concept by itself; `overall` is over all cases for classes, the mean over the concepts else."""

    overall: InpaintedTarget
    targets: list[InpaintedTarget]


def measure_inpainted(
    cases: AuditCases, about: About, masks: CaseMasks, label: np.ndarray, progress: ProgressCallback = silent
) -> InpaintedMeasures | None:
    """Paint over what each case has a mask of, and look again; None where there are no masks.

    A case of unknown label (N,), -1, takes part in `needed` alone.
    """
    if (masks.concepts if about == "concepts" else masks.lesion) is None:
        return None
    names, random = cases.names(about), np.random.default_rng(cases.seed)
    found = np.full((3, len(cases), len(names)), np.nan)
    needed = np.full((len(cases), len(names) if about == "concepts" else 1), np.nan)
    for batch, image in cases.batches(progress):
        pictures, inside = image.double().cpu().numpy(), masks.of(about, cases.rows_of(batch))
        assert inside is not None
        painted: list[np.ndarray] = [*pictures.astype(np.float32)]
        pictured: dict[tuple[int, int], list[int]] = {}  # by case and target, its pictures among those painted
        for i, k in np.argwhere(inside.any((2, 3)) & (about == "classes" or cases.truth(batch) == 1)).tolist():
            mask = widened(inside[i, k])
            if not mask.all():
                other = another_place(pictures[i], mask, random)
                hidden = [
                    paint_over(pictures[i], place).astype(np.float32) for place in (mask, other) if place is not None
                ]
                pictured[i, k] = [i, *range(len(painted), len(painted) + len(hidden))]
                painted += hidden
        values = _values(cases, painted, about)
        for (i, k), which in pictured.items():
            if about == "concepts":
                seen = values[which, k] > THRESHOLD
                found[: len(seen), batch[i], k] = seen
                needed[batch[i], k] = seen[0] and not seen[1]
            else:
                diagnosis, truth = values[which].argmax(1), label[batch[i]]
                if truth >= 0:
                    found[: len(diagnosis), batch[i], truth] = diagnosis == truth
                needed[batch[i], 0] = diagnosis[0] != diagnosis[1]
    return InpaintedMeasures(found, needed)


def summarise_inpainted(measured: InpaintedMeasures, cases: AuditCases, about: About) -> Inpainted | None:
    """Scores of each class or concept; None if none was hidden."""
    if np.isnan(measured.found).all():
        return None
    average = cases.average()
    columns = [average(each) for each in measured.found]
    by_target = zip(cases.names(about), *(each.scores() for each in columns), strict=True)
    of_all = [average(_one(each)) for each in measured.found] if about == "classes" else columns
    overall = InpaintedTarget("all", *(each.mean() for each in of_all))
    return Inpainted(overall, [InpaintedTarget(*each) for each in by_target])


def widened(mask: np.ndarray) -> np.ndarray:
    """The mask (H, W) and a margin around it; an empty one stays empty."""
    return np.asarray(binary_dilation(mask, iterations=max(1, round(_MARGIN * mask.shape[-1]))))


def paint_over(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The image (channels, H, W) with the mask (H, W) filled from its surroundings; something must surround it.

    >>> slope = np.arange(25.0).reshape(1, 5, 5)
    >>> place = np.zeros((5, 5), bool)
    >>> place[1:4, 2:4] = True
    >>> bool(np.allclose(paint_over(np.where(place, 99.0, slope), place), slope))
    True
    """
    inside = mask.ravel()
    rows = grid_laplacian(mask.shape)[inside]
    known = -rows[:, ~inside] @ image.reshape(len(image), -1)[:, ~inside].T
    painted = image.copy()
    painted[:, mask] = splu(rows[:, inside].tocsc()).solve(known).T
    return painted


@lru_cache(maxsize=2)
def grid_laplacian(shape: tuple[int, int]) -> csr_array:
    """How many neighbours each pixel of a grid has, less 1 for each of them: (pixels, pixels).

    >>> grid_laplacian((1, 3)).toarray().astype(int).tolist()
    [[1, -1, 0], [-1, 2, -1], [0, -1, 1]]
    """
    height, width = (laplacian(diags_array([np.ones(n - 1)] * 2, offsets=[-1, 1], shape=(n, n))) for n in shape)
    return csr_array(kronsum(width, height))


def another_place(image: np.ndarray, mask: np.ndarray, random: np.random.Generator) -> np.ndarray | None:
    """The mask (H, W) moved to where it does not touch itself and the image (channels, H, W) has half of its detail.

    Detail is the standard deviation. None where chance finds no such place.
    """
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    if not len(rows):
        return None
    wanted = _LEAST_DETAIL * image[:, mask].std()
    part = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    room = np.subtract(mask.shape, part.shape) + 1
    for top, left in random.integers(0, room, size=(_TRIES, 2)):
        moved = np.zeros_like(mask)
        moved[top : top + part.shape[0], left : left + part.shape[1]] = part
        if not (moved & mask).any() and image[:, moved].std() >= wanted:
            return moved
    return None


def _values(cases: AuditCases, images: list[np.ndarray], about: About) -> np.ndarray:
    """What the model says of images (channels, H, W) about the concepts or the classes: (images, K)."""
    batches = torch.split(torch.from_numpy(np.stack(images)), _FORWARD)
    values = torch.cat([cases.values(each.to(cases.model.device)) for each in batches])
    count = len(cases.model.concepts)
    return (values[:, :count] if about == "concepts" else values[:, count:]).cpu().numpy()


def _one(found: np.ndarray) -> np.ndarray:
    """The only value that each case has, NaN where it has none: (N, classes) -> (N, 1)."""
    known = ~np.isnan(found)
    return np.where(known.any(1), np.where(known, found, 0).sum(1), np.nan)[:, None]
