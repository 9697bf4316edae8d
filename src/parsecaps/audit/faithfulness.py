"""Does the decision rest on what a map shows? Deletion and insertion of image regions (after Petsiuk et al. 2018).

The image is cut into a grid of squares. Deletion covers them one after the other, most relevant first: the more a map
says what the model looks at, the sooner the probability or presence falls. Insertion begins with everything covered and
uncovers them in the same order: the sooner it rises. Random orders show what any order would do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.explain.targets import About
from parsecaps.metrics import Score, means
from parsecaps.types import Output

GRID = 8  # squares along a side
STEPS = 16
RANDOM_ORDERS = 4
_BLUR = 0.1  # standard deviation of the Gaussian, as a share of the image's side
_AT_ONCE = 64  # images in one forward pass

Cover = Literal["blur", "mean"]

Values = Callable[[Tensor], Tensor]  # images (B, channels, H, W) -> (B, K)


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


def target_values(model: nn.Module, about: About) -> Values:
    """What is watched while the image changes: the probability of each class, or the presence of each concept."""

    @torch.no_grad()
    def values(image: Tensor) -> Tensor:
        output: Output = model(image)
        if about == "classes":
            return output.logits.softmax(-1)
        if output.presence is None:
            raise ValueError(f"{type(model).__name__} has no concepts; ask about its classes")
        return output.presence

    return values


def cover(image: Tensor, how: Cover = "blur") -> Tensor:
    """The image with its detail taken away: blurred, or its mean colour everywhere. (B, channels, H, W)."""
    if how not in get_args(Cover):
        raise ValueError(f"cover is {how!r}; choose one of {', '.join(get_args(Cover))}")
    if how == "mean":
        return image.mean((2, 3), keepdim=True).expand_as(image)
    sigma = _BLUR * image.shape[-1]
    reach = min(int(3 * sigma), image.shape[-1] - 1)
    x = torch.arange(-reach, reach + 1, dtype=image.dtype, device=image.device)
    kernel = torch.exp(-(x**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).expand(image.shape[1], 1, 1, -1)
    padded = F.pad(image, (reach,) * 4, mode="reflect")
    blurred = F.conv2d(padded, kernel, groups=image.shape[1])
    return F.conv2d(blurred, kernel.mT, groups=image.shape[1])


def region_order(maps: Tensor, random: np.random.Generator, *, grid: int = GRID) -> Tensor:
    """The regions of each map (P, H, W), the most relevant first: (P, grid * grid).

    Where regions are equal, as all are in a blank map, chance decides; what is not a number counts as 0.
    """
    place = _region_of_pixel(maps, grid)
    flat = maps.detach().double().cpu().nan_to_num(0, 0, 0).flatten(1)
    sums = torch.zeros(len(maps), grid * grid, dtype=torch.float64)
    sums.scatter_add_(1, place.flatten().expand_as(flat), flat)
    chance = random.random(tuple(sums.shape))
    return torch.from_numpy(np.lexsort((chance, -sums.numpy()), axis=1))


def random_order(count: int, random: np.random.Generator, *, grid: int = GRID) -> Tensor:
    """(count, grid * grid)."""
    return torch.from_numpy(random.random((count, grid * grid)).argsort(1))


def region_curve(
    values: Values, image: Tensor, other: Tensor, order: Tensor, *, grid: int = GRID, steps: int = STEPS
) -> Tensor:
    """The values as the regions of `image` become those of `other`, in this order and equal steps.

    Shapes:
        - image, other: (P, channels, H, W); order: (P, grid * grid)
        - output: (P, steps + 1, K)
    """
    place = _region_of_pixel(image, grid).to(image.device)
    rank = order.argsort(1).to(image.device)[:, place].unsqueeze(1)  # (P, 1, H, W)
    done = torch.tensor([round(step * grid * grid / steps) for step in range(steps + 1)], device=image.device)
    pair = torch.arange(len(image), device=image.device).repeat_interleave(steps + 1)
    parts = []
    for which, count in zip(torch.split(pair, _AT_ONCE), torch.split(done.repeat(len(image)), _AT_ONCE), strict=True):
        replaced = rank[which] < count.view(-1, 1, 1, 1)
        parts.append(values(torch.where(replaced, other[which], image[which])))
    return torch.cat(parts).view(len(image), steps + 1, -1)


def measure_curves(
    values: Values,
    image: Tensor,
    maps: Tensor,
    case: Sequence[int],
    target: Sequence[int],
    random: tuple[Tensor, Tensor],
    generator: np.random.Generator,
    *,
    how: Cover = "blur",
    grid: int = GRID,
    steps: int = STEPS,
) -> CurveMeasures:
    """The curves of P pairs: pair i is image `case[i]` with its map for `target[i]`.

    `random` are the curves of random orders, from `random_curves`, which serve all targets and all methods.

    Shapes:
        - image: (B, channels, H, W); maps: (B, K, H, W)
    """
    which, index = torch.as_tensor(case, dtype=torch.long), torch.as_tensor(target, dtype=torch.long)
    chosen = image[which]
    covered = cover(chosen, how)
    order = region_order(maps[which, index], generator, grid=grid)

    def of_target(curve: Tensor) -> np.ndarray:
        picked = curve.gather(2, index.to(curve.device).view(-1, 1, 1).expand(-1, curve.shape[1], 1))
        return np.asarray(picked[..., 0].double().cpu().numpy())

    deleted = region_curve(values, chosen, covered, order, grid=grid, steps=steps)
    inserted = region_curve(values, covered, chosen, order, grid=grid, steps=steps)
    return CurveMeasures(*(of_target(curve) for curve in (deleted, inserted, random[0][which], random[1][which])))


def random_curves(
    values: Values,
    image: Tensor,
    generator: np.random.Generator,
    *,
    how: Cover = "blur",
    orders: int = RANDOM_ORDERS,
    grid: int = GRID,
    steps: int = STEPS,
) -> tuple[Tensor, Tensor]:
    """Deletion and insertion in random orders, the mean over several: each (B, steps + 1, K)."""
    covered = cover(image, how)
    curves = []
    for _ in range(orders):
        order = random_order(len(image), generator, grid=grid)
        both = ((image, covered), (covered, image))
        curves.append([region_curve(values, *pair, order, grid=grid, steps=steps) for pair in both])
    deleted, inserted = (torch.stack(each).mean(0) for each in zip(*curves, strict=True))
    return deleted, inserted


def summarise_curves(
    parts: Sequence[CurveMeasures], group: np.ndarray, *, resamples: int = 1000, seed: int = 0
) -> Faithfulness:
    """Mean curves and areas over all pairs, with 95 % intervals over patients (`group`: (P,))."""
    measured = CurveMeasures(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    areas = CurveMeasures(*(area(curves) for curves in measured))
    columns = np.stack(
        [
            areas.deletion,
            areas.insertion,
            areas.random_deletion - areas.deletion,
            areas.insertion - areas.random_insertion,
        ],
        axis=1,
    )
    scores = means(columns, group, resamples=resamples, seed=seed).scores()
    curves = [each.mean(0).tolist() for each in measured]
    return Faithfulness(np.linspace(0, 1, measured.deletion.shape[1]).tolist(), *curves, *scores)


def area(curves: np.ndarray) -> np.ndarray:
    """The area under curves (P, points) over [0, 1], by trapezoids: (P,)."""
    return np.asarray((curves[:, 1:] + curves[:, :-1]).mean(1) / 2)


def _region_of_pixel(image: Tensor, grid: int) -> Tensor:
    """The number of the region that each pixel of an image or map lies in: (..., H, W) -> (H, W)."""
    height, width = image.shape[-2:]
    if grid > min(height, width):
        raise ValueError(f"{grid} regions do not fit along {min(height, width)} pixels; give fewer")
    rows, columns = torch.arange(height) * grid // height, torch.arange(width) * grid // width
    return rows.unsqueeze(1) * grid + columns
