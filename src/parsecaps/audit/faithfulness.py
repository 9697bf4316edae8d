"""Do maps follow the model? Deletion and insertion of what they show, and weights made random.

Faithfulness, by pixel flipping of regions. Deletion (Samek et al. 2017; Petsiuk et al. 2018) covers the squares of a
grid one after the other, most relevant first: the more a map says what the model looks at, the sooner the probability
or presence falls. Insertion uncovers them in the same order. Random orders show what any order would do.

Parameter randomisation (Adebayo et al. 2018): stage by stage, from the heads to the image, the numbers of each
parameter are put into a random order, and maps are compared with those of the trained model. Maps that stay alike show
edges of the image, not reasons.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from scipy.stats import rankdata
from torch import Tensor, nn

from parsecaps.audit.audit_cases import Average, Values
from parsecaps.metrics import Score
from parsecaps.metrics.bootstrap import SHARE, SIGNED_SHARE
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.heads import Decoder
from parsecaps.prediction.predict import as_array
from parsecaps.types import ProgressCallback, silent

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
    """Mean curves over pairs of a case and a target, by the share of regions `covered`, and their areas."""

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
    blurred = gaussian_filter(image.cpu().numpy(), sigma, radius=reach, axes=(2, 3), mode="mirror")
    return torch.from_numpy(blurred).to(image)


def region_order(maps: Tensor, chance: np.ndarray, *, grid: int = GRID) -> Tensor:
    """The regions of each map (P, H, W), the most relevant first: (P, grid * grid).

    Where regions are equal, `chance` decides: random numbers (P, grid * grid). What is not a number counts as 0.
    """
    place = _region_of_pixel(maps, grid)
    flat = maps.detach().double().cpu().nan_to_num(0, 0, 0).flatten(1)
    sums = torch.zeros(len(maps), grid * grid, dtype=torch.float64)
    sums.scatter_add_(1, place.flatten().expand_as(flat), flat)
    return torch.from_numpy(np.lexsort((chance, -sums.numpy()), axis=1))


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
    ends = (torch.cat([values(part) for part in torch.split(each, _FORWARD)]) for each in (image, covered))
    whole, nothing = (end[which].unsqueeze(1) for end in ends)

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
    grid: int = GRID,
    steps: int = STEPS,
) -> Curves:
    """Curves of random orders, the mean over several for each image; they serve all targets and methods."""
    drawn = torch.from_numpy(random.random((RANDOM_ORDERS * len(image), grid * grid)).argsort(1))
    found = region_curves(values, image, covered, [*range(len(image))] * RANDOM_ORDERS, drawn, grid=grid, steps=steps)
    return Curves(*(torch.stack(curve.chunk(RANDOM_ORDERS)).mean(0) for curve in found))


def curves_of_targets(curves: Curves, random: Curves, case: Sequence[int], column: Sequence[int]) -> CurveMeasures:
    """Of P curves those of one target each, beside the random ones of the same image and target."""
    pair, which, index = (torch.as_tensor(each, dtype=torch.long) for each in (range(len(column)), case, column))
    found = [curve[pair, :, index] for curve in curves] + [curve[which, :, index] for curve in random]
    return CurveMeasures(*map(as_array, found))


def summarise_curves(measured: CurveMeasures, average: Average) -> Faithfulness:
    """Mean curves and areas over all pairs."""
    deletion, insertion, random_deletion, random_insertion = map(area, measured)
    areas = average(np.stack([deletion, insertion], 1), bounds=SHARE).scores()
    gains = np.stack([random_deletion - deletion, insertion - random_insertion], 1)
    scores = [*areas, *average(gains, bounds=SIGNED_SHARE).scores()]
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


Maps = Callable[[PretrainedModel], Tensor]  # a model -> the maps of P pairs of a case and a target (P, H, W)

_C1, _C2 = 0.01**2, 0.03**2  # of the structural similarity


class CascadeMeasures(NamedTuple):
    """How alike maps are to those of the trained model, for P pairs of a case and a target, after each stage.

    Shapes:
        - spearman, ssim: (P, stages), NaN where the trained model's own map is blank
    """

    stages: list[str]
    spearman: np.ndarray
    ssim: np.ndarray


@dataclass(frozen=True)
class Randomised:
    """Mean likeness to the maps of the trained model after each stage was made random, from the top down.

    `spearman` is the rank correlation over the pixels, `ssim` the structural similarity; 0 for a map that became blank.
    """

    stages: list[str]
    spearman: list[Score]
    ssim: list[Score]


def randomise_cascade(
    model: PretrainedModel,
    maps: Mapping[str, Maps],
    own: Mapping[str, Tensor],
    *,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> dict[str, CascadeMeasures]:
    """Make a copy of the model random, stage by stage, and compare its maps with the model's `own`, for each method."""
    randomised = deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    stages = list(stages_from_top(randomised))
    trained = {name: np.nan_to_num(as_array(each), posinf=0, neginf=0) for name, each in own.items()}
    alike: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in maps}
    progress(0, len(stages))
    for i, (_, stage) in enumerate(stages):
        randomise(stage, generator)
        for name, make in maps.items():
            now = np.nan_to_num(as_array(make(randomised)), posinf=0, neginf=0)
            alike[name].append((rank_correlation(trained[name], now), structural_similarity(trained[name], now)))
        progress(i + 1, len(stages))
    names = [name for name, _ in stages]
    return {
        name: CascadeMeasures(names, *(np.stack(each, axis=1) for each in zip(*found, strict=True)))
        for name, found in alike.items()
    }


def summarise_cascade(
    measured: CascadeMeasures, average: Average, pairs: Sequence[int] | slice = slice(None)
) -> Randomised:
    """Means over all pairs, or some."""
    alike = (average(each[pairs], bounds=SIGNED_SHARE).scores() for each in (measured.spearman, measured.ssim))
    return Randomised(measured.stages, *alike)


def stages_from_top(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a model that have parameters, the last first, without the decoder; sequences part by part."""

    def parts(module: nn.Module, prefix: str) -> Iterator[tuple[str, nn.Module]]:
        for name, child in module.named_children():
            if isinstance(child, nn.Sequential | nn.ModuleList):
                yield from parts(child, f"{prefix}{name}.")
            elif not isinstance(child, Decoder) and any(True for _ in child.parameters()):
                yield f"{prefix}{name}", child

    yield from reversed(list(parts(model, "")))


@torch.no_grad()
def randomise(module: nn.Module, generator: torch.Generator) -> None:
    """Put the numbers of each parameter into a random order."""
    for parameter in module.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        parameter.copy_(parameter.flatten()[order].view_as(parameter))


def rank_correlation(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's correlation over the pixels: (P, H, W) twice -> (P,); NaN where the first is blank, 0 the second."""
    ranks = [rankdata(maps.reshape(len(maps), -1), axis=1) for maps in (first, second)]
    a, b = (each - each.mean(1, keepdims=True) for each in ranks)
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    alike = (a * b).sum(1) / np.where(scale > 0, scale, 1)
    return np.where(_blank(first), np.nan, np.where(_blank(second), 0, alike))


def structural_similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """SSIM of maps scaled to a maximum of 1: (P, H, W) twice -> (P,); NaN where the first is blank, 0 the second.

    As torchmetrics has it (Wang et al. 2004), but with a separable filter, which is thirty times as fast.
    """
    a, b = _scaled(first), _scaled(second)
    smooth = partial(gaussian_filter, sigma=1.5, radius=5, axes=(1, 2), mode="mirror")
    mean_a, mean_b, aa, bb, ab = map(smooth, (a, b, a * a, b * b, a * b))
    light = (2 * mean_a * mean_b + _C1) / (mean_a**2 + mean_b**2 + _C1)
    spread = np.maximum(aa - mean_a**2, 0) + np.maximum(bb - mean_b**2, 0)
    alike = (light * (2 * (ab - mean_a * mean_b) + _C2) / (spread + _C2)).mean((1, 2))
    return np.where(_blank(first), np.nan, np.where(_blank(second), 0, alike))


def _blank(maps: np.ndarray) -> np.ndarray:
    flat = maps.reshape(len(maps), -1)
    return np.asarray(flat.max(1) <= flat.min(1))


def _scaled(maps: np.ndarray) -> np.ndarray:
    highest = np.abs(maps).max((1, 2), keepdims=True)
    return np.asarray(maps / np.where(highest > 0, highest, 1))
