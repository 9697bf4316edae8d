"""The evidence that climbs: how much of what the leaves brought goes through each capsule and each route.

Each primary capsule brings evidence to its parents (`explain.path`, what is positive of it), and what arrives at a
capsule goes on to its own parents in proportion to what it brought to them. So every layer carries the same amount,
the leaves carry what the maps show, and how much goes through any part of the tree is a plain sum. Evidence for a
capsule that brings nothing further, itself or through its parents, leads nowhere and is left out.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from parsecaps.explain.path import EdgeRelevance
from parsecaps.explain.trace import CellRoutes


@dataclass(frozen=True)
class Climb:
    """Shares of all evidence that arrives at one target, for one image; each layer's sum to 1, or to 0 without any.

    Shapes:
        - nodes: one (n,) for each layer, the primary one first
        - edges: one (n', n) for each cell; 0 where no route leads, or where it brought nothing
    """

    nodes: tuple[Tensor, ...]
    edges: tuple[Tensor, ...]


@torch.no_grad()
def climb(cells: tuple[CellRoutes, ...], brought: tuple[EdgeRelevance, ...]) -> Climb:
    """The climb of the first image of a batch, along the routes that it has: an exact zero carries nothing."""
    leads_on = brought[-1].total[0].sum(1) > 0  # (n_L,): the top capsules that speak for the target
    edges: list[Tensor] = []
    for cell, bring in zip(reversed(cells), reversed(brought), strict=True):
        along = Tensor.clamp_min(_along_routes(cell, bring), 0) * leads_on.unsqueeze(1)
        edges.insert(0, along)
        leads_on = along.sum(0) > 0
    nodes, flows = [edges[0].sum(0)], []
    for along in edges:
        flows.append(along * _divide(nodes[-1], along.sum(0)))
        nodes.append(flows[-1].sum(1))
    whole = nodes[0].sum()
    return Climb(tuple(_divide(node, whole) for node in nodes), tuple(_divide(flow, whole) for flow in flows))


def _along_routes(cell: CellRoutes, bring: EdgeRelevance) -> Tensor:
    """(n', n): what children brought along couplings that are not zero, and along the other ways."""
    return EdgeRelevance(bring.sparse * (cell.coupling > 0), bring.axial, bring.own).total[0]


def _divide(x: Tensor, by: Tensor) -> Tensor:
    return torch.where(by > 0, x / torch.where(by > 0, by, 1), 0)
