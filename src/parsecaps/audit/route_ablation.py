"""Does the decision rest on the routes that an explanation shows? They are cut, and it must fall.

In every cell a share of the routes (couplings above 0) is set to 0: those that brought most to the target by the
explanation; as many at random; and, as a harder rival, those with the strongest couplings, which know nothing of the
target. The cells above choose anew from what is left.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.audit.faithfulness import Values
from parsecaps.metrics import Score, means
from parsecaps.nn.couplings import Coupling, Rule, record_couplings, replace_couplings

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
RANDOM_CUTS = 3

# a model, images (B, channels, H, W), a target -> what each route of each cell brought, (B, heads, parents, children)
RouteRelevance = Callable[[nn.Module, Tensor, int], Sequence[Tensor]]


class CutMeasures(NamedTuple):
    """The value of the target for each of P cases, with all routes and after each share of them is cut.

    Shapes:
        - each: (P, 1 + shares)
    """

    shown: np.ndarray
    random: np.ndarray
    strongest: np.ndarray


@dataclass(frozen=True)
class RouteAblation:
    """Mean values over pairs of a case and a target as more routes are cut, by what is cut.

    `gain` is how much lower the value is with the shown routes cut than with as many random ones, `gain_on_strongest`
    than with the strongest ones: means over the shares. `shares` begins with 0.
    """

    shares: list[float]
    shown: list[float]
    random: list[float]
    strongest: list[float]
    gain: Score
    gain_on_strongest: Score


@torch.no_grad()
def cut_routes(
    model: nn.Module,
    values: Values,
    image: Tensor,
    target: int,
    relevance: Sequence[Tensor],
    generator: np.random.Generator,
    *,
    shares: Sequence[float] = SHARES,
) -> CutMeasures:
    """Cut the routes of a few images (P, channels, H, W) and watch one target; `relevance` is of each cell's routes."""
    modules = [module for module in model.modules() if isinstance(module, Coupling) and module.branch == "sparse"]
    with record_couplings(model) as recorded:
        model(image)
    couplings = [each.coupling for each in recorded if each.branch == "sparse"]
    if not len(modules) == len(couplings) == len(relevance):
        raise ValueError(
            f"{len(relevance)} cells have a relevance, but the model has {len(modules)}; give one for each"
        )

    whole = values(image)[:, target]

    def curve(scores: Sequence[Tensor]) -> np.ndarray:
        ranks = [_rank(score, c) for score, c in zip(scores, couplings, strict=True)]
        points = [whole]
        for share in shares:
            cut: dict[nn.Module, Tensor] = {
                module: module.kept((rank < _count(c, share)).to(c.dtype))
                for module, rank, c in zip(modules, ranks, couplings, strict=True)
            }
            with replace_couplings(model, _without(cut)):
                points.append(values(image)[:, target])
        return np.asarray(torch.stack(points, 1).double().cpu().numpy())

    random = []
    for _ in range(RANDOM_CUTS):
        chance = [torch.from_numpy(generator.random(tuple(c.shape), dtype=np.float32)).to(c.device) for c in couplings]
        random.append(curve(chance))
    return CutMeasures(curve(relevance), np.mean(random, axis=0), curve(couplings))


def summarise_cuts(
    parts: Sequence[CutMeasures],
    group: np.ndarray,
    *,
    shares: Sequence[float] = SHARES,
    resamples: int = 1000,
    seed: int = 0,
) -> RouteAblation:
    """Means over all pairs, with 95 % intervals over patients (`group`: (P,))."""
    measured = CutMeasures(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    gains = [(rival - measured.shown)[:, 1:].mean(1) for rival in (measured.random, measured.strongest)]
    gain, on_strongest = means(np.stack(gains, axis=1), group, resamples=resamples, seed=seed).scores()
    shown, random, strongest = (each.mean(0).tolist() for each in measured)
    return RouteAblation([0.0, *shares], shown, random, strongest, gain, on_strongest)


def _without(cut: dict[nn.Module, Tensor]) -> Rule:
    """The rule by which the cells do without some routes: 1 where a coupling is cut, in the form it is kept in."""
    return lambda module, c: c * (1 - cut[module]) if module in cut else c


def _rank(score: Tensor, coupling: Tensor) -> Tensor:
    """The place of each route of a case in the order of its score, from 0; those that are not there come last."""
    there = torch.where(coupling > 0, score.to(coupling), -math.inf).flatten(1)
    return there.argsort(dim=1, descending=True, stable=True).argsort(1).view_as(coupling)


def _count(coupling: Tensor, share: float) -> Tensor:
    """How many routes of each case are cut, rounded up: (P, 1, 1, 1)."""
    return torch.ceil(share * (coupling > 0).flatten(1).sum(1)).view(-1, 1, 1, 1)
