"""Do maps depend on what the model has learned? Weights are made random from the top down (after Adebayo et al. 2018).

Stage by stage, from the heads to the image, a model forgets what it knows, and its maps are compared with those of the
whole model. Maps that stay alike show edges of the image, not reasons. A stage forgets by having the numbers of each of
its parameters dealt anew at random: other places, the same sizes, so that no layer vanishes or saturates by that.
"""

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.metrics import Score, means
from parsecaps.nn.decoder import Decoder

Maps = Callable[[nn.Module, Tensor], Tensor]  # a model and images (B, channels, H, W) -> (B, K, H, W)


class CascadeMeasures(NamedTuple):
    """How alike maps are to those of the whole model, for P pairs of a case and a target, after each stage.

    Shapes:
        - spearman, ssim: (P, stages), NaN where the whole model's own map is blank
    """

    stages: list[str]
    spearman: np.ndarray
    ssim: np.ndarray


@dataclass(frozen=True)
class Randomised:
    """Mean likeness to the maps of the whole model after each stage was made random, from the top down.

    `spearman` is the rank correlation over the pixels, `ssim` the structural similarity of maps scaled to a maximum
    of 1. A map that has become blank is like no other: 0.
    """

    stages: list[str]
    spearman: list[Score]
    ssim: list[Score]


def cascade(
    model: nn.Module, maps: Maps, image: Tensor, case: Sequence[int], target: Sequence[int], *, seed: int = 0
) -> CascadeMeasures:
    """Make a copy of the model random, stage by stage, and compare the maps of P pairs; the model stays as it is."""
    which, index = torch.as_tensor(case, dtype=torch.long), torch.as_tensor(target, dtype=torch.long)
    forgetful = deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    own = _array(maps(model, image)[which, index])
    stages, spearman, ssim = [], [], []
    for name, stage in stages_from_top(forgetful):
        deal_anew(stage, generator)
        now = _array(maps(forgetful, image)[which, index])
        stages.append(name)
        spearman.append(rank_correlation(own, now))
        ssim.append(structural_similarity(own, now))
    return CascadeMeasures(stages, np.stack(spearman, axis=1), np.stack(ssim, axis=1))


def summarise_cascade(
    parts: Sequence[CascadeMeasures], group: np.ndarray, *, resamples: int = 1000, seed: int = 0
) -> Randomised:
    """Means over all pairs, with 95 % intervals over patients (`group`: (P,))."""
    spearman, ssim = (
        means(np.concatenate(each), group, resamples=resamples, seed=seed).scores()
        for each in ([part.spearman for part in parts], [part.ssim for part in parts])
    )
    return Randomised(parts[0].stages, spearman, ssim)


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
def deal_anew(module: nn.Module, generator: torch.Generator) -> None:
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
    """SSIM of maps scaled to a maximum of 1: (P, H, W) twice -> (P,); NaN where the first is blank, 0 the second."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    if not len(first):
        return np.empty(0)
    a, b = (torch.from_numpy(_scaled(maps)).unsqueeze(1) for maps in (first, second))
    alike = structural_similarity_index_measure(a, b, data_range=1.0, reduction="none")
    assert isinstance(alike, Tensor)
    return np.where(_blank(first), np.nan, np.where(_blank(second), 0, alike.view(-1).numpy()))


def _array(maps: Tensor) -> np.ndarray:
    return np.asarray(maps.detach().double().nan_to_num(0, 0, 0).cpu().numpy())


def _blank(maps: np.ndarray) -> np.ndarray:
    flat = maps.reshape(len(maps), -1)
    return np.asarray(flat.max(1) <= flat.min(1))


def _scaled(maps: np.ndarray) -> np.ndarray:
    highest = np.abs(maps).max((1, 2), keepdims=True)
    return np.asarray(maps / np.where(highest > 0, highest, 1))
