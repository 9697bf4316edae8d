"""Faithfulness: does the decision rest on what a map shows? Pixel flipping by regions, or deletion and insertion.

The image is cut into a grid of squares. Deletion (Samek et al. 2017; Petsiuk et al. 2018) covers them one after the
other, most relevant first: the more a map says what the model looks at, the sooner the probability or presence falls.
Insertion begins with everything covered and uncovers them in the same order: the sooner it rises. Random orders show
what any order would do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.audit.cases import Values
from parsecaps.metrics import Score, means
from parsecaps.metrics.bootstrap import SHARE, SIGNED_SHARE

GRID = 8  # squares along a side
STEPS = 16
RANDOM_ORDERS = 4
_BLUR = 0.1  # standard deviation of the Gaussian, as a share of the image's side
_FORWARD = 64  # images in one forward pass


class Curves(NamedTuple):
    """The values of P orders after each step, for all K columns of what a model says.

    Shapes:
        - deletion, insertion: (P, steps + 1, K)
    """

    deletion: Tensor
    insertion: Tensor


class CurveMeasures(NamedTuple):
    """The value of each of P pairs of a case and a target, after each step.

    Shapes:
        - deletion, insertion, random_deletion, random_insertion: (P, steps + 1)
    """

    deletion: np.ndarray
    insertion: np.ndarray
    random_deletion: np.ndarray
    random_insertion: np.ndarray


@dataclass(frozen=True)
class Faithfulness:
    """Mean curves over pairs of a case and a target, the areas under them, and how far these beat random orders.

    `covered` is the share of the regions that are covered (deletion) or uncovered (insertion) at each point. A low area
    is good for deletion, a high one for insertion; both gains are good above 0.
    """

    covered: list[float]
    deletion: list[float]
    insertion: list[float]
    random_deletion: list[float]
    random_insertion: list[float]
    deletion_area: Score
    insertion_area: Score
    deletion_gain: Score
    insertion_gain: Score


def cover(image: Tensor) -> Tensor:
    """The image with its detail taken away, blurred: (B, channels, H, W)."""
    sigma = _BLUR * image.shape[-1]
    reach = min(int(3 * sigma), image.shape[-1] - 1)
    x = torch.arange(-reach, reach + 1, dtype=image.dtype, device=image.device)
    kernel = torch.exp(-(x**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(image.shape[1], 1, 1, -1)
    padded = F.pad(image, (reach,) * 4, mode="reflect")
    blurred = F.conv2d(padded, kernel, groups=image.shape[1])
    return F.conv2d(blurred, kernel.mT, groups=image.shape[1])


def region_order(maps: Tensor, chance: np.ndarray, *, grid: int = GRID) -> Tensor:
    """The regions of each map (P, H, W), the most relevant first: (P, grid * grid).

    Where regions are equal, as all are in a blank map, `chance` decides: random numbers (P, grid * grid). What is not a
    number counts as 0.
    """
    place = _region_of_pixel(maps, grid)
    flat = maps.detach().double().cpu().nan_to_num(0, 0, 0).flatten(1)
    sums = torch.zeros(len(maps), grid * grid, dtype=torch.float64)
    sums.scatter_add_(1, place.flatten().expand_as(flat), flat)
    return torch.from_numpy(np.lexsort((chance, -sums.numpy()), axis=1))


def random_order(count: int, random: np.random.Generator, *, grid: int = GRID) -> Tensor:
    """(count, grid * grid)."""
    return torch.from_numpy(random.random((count, grid * grid)).argsort(1))


def region_curves(
    values: Values,
    image: Tensor,
    covered: Tensor,
    case: Sequence[int],
    order: Tensor,
    *,
    grid: int = GRID,
    steps: int = STEPS,
) -> Curves:
    """Delete and insert the regions of P orders in equal steps; order i is of image `case[i]`.

    Images with nothing, and with everything covered, are the ends of all their curves and are looked at once.

    Shapes:
        - image, covered: (B, channels, H, W); order: (P, grid * grid)
    """
    which = torch.as_tensor(case, dtype=torch.long, device=image.device)
    region = _region_of_pixel(image, grid).to(image.device)
    rank = order.argsort(1).to(image.device)  # (P, grid * grid): the turn of each region
    done = torch.tensor([round(step * grid * grid / steps) for step in range(1, steps)], device=image.device)
    pair, count = torch.arange(len(which), device=image.device).repeat_interleave(len(done)), done.repeat(len(which))
    whole, nothing = (_in_batches(values, each)[which].unsqueeze(1) for each in (image, covered))

    def between(before: Tensor, after: Tensor) -> Tensor:
        parts = []
        for some, now in zip(torch.split(pair, _FORWARD), torch.split(count, _FORWARD), strict=True):
            changed = (rank[some] < now.unsqueeze(1))[:, region].unsqueeze(1)  # (n, 1, H, W)
            parts.append(values(torch.where(changed, after[which[some]], before[which[some]])))
        return torch.cat(parts).view(len(which), len(done), -1)

    deleted, inserted = between(image, covered), between(covered, image)
    return Curves(torch.cat([whole, deleted, nothing], 1), torch.cat([nothing, inserted, whole], 1))


def random_curves(
    values: Values,
    image: Tensor,
    covered: Tensor,
    random: np.random.Generator,
    *,
    orders: int = RANDOM_ORDERS,
    grid: int = GRID,
    steps: int = STEPS,
) -> Curves:
    """Curves of random orders, the mean over several for each image; they serve all targets and methods."""
    drawn = torch.cat([random_order(len(image), random, grid=grid) for _ in range(orders)])
    found = region_curves(values, image, covered, [*range(len(image))] * orders, drawn, grid=grid, steps=steps)
    return Curves(*(torch.stack(curve.chunk(orders)).mean(0) for curve in found))


def curves_of_targets(curves: Curves, random: Curves, case: Sequence[int], column: Sequence[int]) -> CurveMeasures:
    """Of P curves those of one target each, beside the random ones of the same image and target."""
    pair, which, index = (torch.as_tensor(each, dtype=torch.long) for each in (range(len(column)), case, column))
    found = [curve[pair, :, index] for curve in curves] + [curve[which, :, index] for curve in random]
    return CurveMeasures(*(np.asarray(each.double().cpu().numpy()) for each in found))


def join_curves(parts: Sequence[CurveMeasures], pairs: Sequence[int]) -> CurveMeasures:
    """The curves of all batches, and of these some pairs."""
    return CurveMeasures(*(np.concatenate(each)[pairs] for each in zip(*parts, strict=True)))


def summarise_curves(
    measured: CurveMeasures, group: np.ndarray, *, resamples: int = 1000, seed: int = 0
) -> Faithfulness:
    """Mean curves and areas over all pairs, with 95 % intervals over patients (`group`: (P,))."""
    areas = CurveMeasures(*(area(curves) for curves in measured))
    gains = areas.random_deletion - areas.deletion, areas.insertion - areas.random_insertion
    scores = [
        score
        for columns, bounds in (((areas.deletion, areas.insertion), SHARE), (gains, SIGNED_SHARE))
        for score in means(np.stack(columns, axis=1), group, bounds=bounds, resamples=resamples, seed=seed).scores()
    ]
    curves = [each.mean(0).tolist() for each in measured]
    return Faithfulness(np.linspace(0, 1, measured.deletion.shape[1]).tolist(), *curves, *scores)


def area(curves: np.ndarray) -> np.ndarray:
    """The area under curves (P, points) over [0, 1], by trapezoids: (P,)."""
    return np.asarray((curves[:, 1:] + curves[:, :-1]).mean(1) / 2)


def _in_batches(values: Values, image: Tensor) -> Tensor:
    return torch.cat([values(part) for part in torch.split(image, _FORWARD)])


def _region_of_pixel(image: Tensor, grid: int) -> Tensor:
    """The number of the region that each pixel of an image or map lies in: (..., H, W) -> (H, W)."""
    height, width = image.shape[-2:]
    if grid > min(height, width):
        raise ValueError(f"{grid} regions do not fit along {min(height, width)} pixels; give fewer")
    rows, columns = torch.arange(height) * grid // height, torch.arange(width) * grid // width
    return rows.unsqueeze(1) * grid + columns
