"""Parameter randomisation: do maps depend on what the model has learned (Adebayo et al. 2018)?

Stage by stage, from the heads to the image, the weights of a model are made random, and its maps are compared with
those of the trained model. Maps that stay alike show edges of the image, not reasons. The numbers of each parameter are
put into a random order: other places, the same sizes, so that no layer vanishes or saturates by that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.metrics import Score, means
from parsecaps.metrics.bootstrap import SIGNED_SHARE
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.decoder import Decoder
from parsecaps.types import ProgressCallback, silent

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

    def of(self, pairs: Sequence[int]) -> "CascadeMeasures":
        """Some of the pairs."""
        return CascadeMeasures(self.stages, self.spearman[pairs], self.ssim[pairs])


@dataclass(frozen=True)
class Randomised:
    """Mean likeness to the maps of the trained model after each stage was made random, from the top down.

    `spearman` is the rank correlation over the pixels, `ssim` the structural similarity of maps scaled to a maximum
    of 1. A map that has become blank is like no other: 0.
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
    """Make a copy of the model random, stage by stage, and compare its maps with the model's `own`, for each method.

    Each random network serves all methods; the model stays as it is.
    """
    randomised = deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    stages = list(stages_from_top(randomised))
    trained = {name: _array(each) for name, each in own.items()}
    alike: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {name: [] for name in maps}
    progress(0, len(stages))
    for i, (_, stage) in enumerate(stages):
        randomise(stage, generator)
        for name, make in maps.items():
            now = _array(make(randomised))
            alike[name].append((rank_correlation(trained[name], now), structural_similarity(trained[name], now)))
        progress(i + 1, len(stages))
    names = [name for name, _ in stages]
    return {
        name: CascadeMeasures(names, *(np.stack(each, axis=1) for each in zip(*found, strict=True)))
        for name, found in alike.items()
    }


def summarise_cascade(
    measured: CascadeMeasures, group: np.ndarray, *, resamples: int = 1000, seed: int = 0
) -> Randomised:
    """Means over all pairs, with 95 % intervals over patients (`group`: (P,))."""
    spearman, ssim = (
        means(each, group, bounds=SIGNED_SHARE, resamples=resamples, seed=seed).scores()
        for each in (measured.spearman, measured.ssim)
    )
    return Randomised(measured.stages, spearman, ssim)


def stages_from_top(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The parts of a model that have parameters, the last first, as they are registered; sequences part by part.

    The decoder is left out: no decision depends on it.
    """

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
    from scipy.stats import rankdata

    ranks = [rankdata(maps.reshape(len(maps), -1), axis=1) for maps in (first, second)]
    a, b = (each - each.mean(1, keepdims=True) for each in ranks)
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    alike = (a * b).sum(1) / np.where(scale > 0, scale, 1)
    return np.where(_blank(first), np.nan, np.where(_blank(second), 0, alike))


def structural_similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """SSIM of maps scaled to a maximum of 1: (P, H, W) twice -> (P,); NaN where the first is blank, 0 the second.

    As torchmetrics has it (Wang et al. 2004, a Gaussian window of 11 pixels), but with a separable filter, which is
    thirty times as fast.
    """
    a, b = _scaled(first), _scaled(second)
    mean_a, mean_b, aa, bb, ab = (_smooth(each) for each in (a, b, a * a, b * b, a * b))
    light = (2 * mean_a * mean_b + _C1) / (mean_a**2 + mean_b**2 + _C1)
    spread = np.maximum(aa - mean_a**2, 0) + np.maximum(bb - mean_b**2, 0)
    alike = (light * (2 * (ab - mean_a * mean_b) + _C2) / (spread + _C2)).mean((1, 2))
    return np.where(_blank(first), np.nan, np.where(_blank(second), 0, alike))


def _smooth(maps: np.ndarray) -> np.ndarray:
    """The weighted mean around each pixel: (P, H, W)."""
    from scipy.ndimage import gaussian_filter

    return np.asarray(gaussian_filter(maps, 1.5, radius=5, axes=(1, 2), mode="mirror"))


def _array(maps: Tensor) -> np.ndarray:
    return np.asarray(maps.detach().double().nan_to_num(0, 0, 0).cpu().numpy())


def _blank(maps: np.ndarray) -> np.ndarray:
    flat = maps.reshape(len(maps), -1)
    return np.asarray(flat.max(1) <= flat.min(1))


def _scaled(maps: np.ndarray) -> np.ndarray:
    highest = np.abs(maps).max((1, 2), keepdims=True)
    return np.asarray(maps / np.where(highest > 0, highest, 1))
