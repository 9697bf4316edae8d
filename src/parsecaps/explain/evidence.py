"""How evidence flows from the leaves to a target, and the regions that carry it: what a parse tree shows.

Each primary capsule brings evidence to its parents (what is positive of `attribution_path`), and what arrives at a
capsule goes on to its own parents in proportion to what it brought to them. So every layer carries the same amount, and
the leaves carry what the maps show. Evidence for a capsule that brings nothing further is left out.

A tree has a level for each grid; what a block does on the same grid is one step. Below each region, the evidence that
it got lies on the grid of the level below like hills, each of which is a region there. So every region has one parent,
and its share is the evidence that flows from it through its ancestors. The same capsules can be in regions of several
parents, unless the tree is strict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, pairwise

import numpy as np
import torch
from torch import Tensor

from parsecaps.nn.recorder import RecordedStage

CORE = 0.9


@dataclass(frozen=True, eq=False)
class EvidenceFlow:
    """Shares of all evidence that arrives at one target, for one image; each layer's sum to 1, or to 0 without any.

    Shapes:
        - nodes: one (n,) for each layer, the primary one first
        - edges: one (n', n) for each cell; 0 where no route leads, or where it brought nothing
    """

    nodes: tuple[Tensor, ...]
    edges: tuple[Tensor, ...]


@torch.no_grad()
def evidence_flow(cells: Sequence[RecordedStage], brought: Sequence[Sequence[Tensor]]) -> EvidenceFlow:
    """The flow of the first image of a batch, by what `AttributionPath.route_relevance` gives for the same cells."""
    leads_on = _over_ways(cells[-1], brought[-1]).sum(1) > 0  # (n_L,): the top capsules that speak for the target
    edges: list[Tensor] = []
    for cell, by_way in zip(reversed(cells), reversed(brought), strict=True):
        taken = [kept * (way.messages.coupling > 0) for way, kept in zip(cell.ways, by_way, strict=True)]
        along = _over_ways(cell, taken).clamp_min(0) * leads_on.unsqueeze(1)
        edges.insert(0, along)
        leads_on = along.sum(0) > 0
    nodes, flows = [edges[0].sum(0)], []
    for along in edges:
        flows.append(along * _divide(nodes[-1], along.sum(0)))
        nodes.append(flows[-1].sum(1))
    whole = nodes[0].sum()
    return EvidenceFlow(tuple(_divide(node, whole) for node in nodes), tuple(_divide(flow, whole) for flow in flows))


def _over_ways(cell: RecordedStage, kept: Sequence[Tensor]) -> Tensor:
    """(n', n): the sum over heads and ways of numbers in the form kept, for the first image."""
    dense = [way.messages.dense(each[:1])[0].sum(0) for way, each in zip(cell.ways, kept, strict=True)]
    return torch.stack(dense).sum(0)


def _divide(x: Tensor, by: Tensor) -> Tensor:
    return torch.where(by > 0, x / torch.where(by > 0, by, 1), 0)


@dataclass(frozen=True, eq=False)
class Level:
    """A grid of the tree. `layer` counts the cells below it; `down` is what part of a capsule's evidence came from each
    capsule of the level below, (n', n), and None at the primary capsules.
    """

    layer: int
    width: int
    down: Tensor | None


@dataclass(frozen=True, eq=False)
class Region:
    """Neighbouring capsules of a level (0 is the lowest) with the share of all evidence that flows from each of them
    through `parent` and its ancestors; the strongest capsule comes first.
    """

    level: int
    capsules: tuple[int, ...]
    shares: tuple[float, ...]
    parent: "Region | None"

    @property
    def share(self) -> float:
        return sum(self.shares)

    @property
    def core(self) -> tuple[int, ...]:
        """The fewest of its capsules that carry nine tenths of its share."""
        carried = list(accumulate(self.shares))
        return self.capsules[: 1 + sum(each < CORE * carried[-1] for each in carried)]


def tree_levels(
    cells: Sequence[RecordedStage], widths: Sequence[int], flow: EvidenceFlow, strict: bool | Tensor
) -> list[Level]:
    """The grids from the primary one up; `strict` leaves out what reached a capsule's parents beside its single one."""
    levels = [Level(0, widths[0], None)]
    for below, end in pairwise(tree_layers(cells)):
        steps: list[Tensor] = []
        for i in range(below, end):
            edges = flow.edges[i]
            if isinstance(strict, Tensor) or strict:
                edges = edges * (single_parent(cells[i]) | ~torch.as_tensor(strict))
            steps.insert(0, _divide(edges, flow.nodes[i + 1].unsqueeze(1)))
        levels.append(Level(end, widths[end], reduce(torch.matmul, steps)))
    return levels


def tree_layers(cells: Sequence[RecordedStage]) -> list[int]:
    """The number of cells below each level: 0 for the primary capsules, and for each grid above its block's last."""
    if all(cell.module.keeps_grid for cell in cells):
        return [0]
    return [0, *(i for i in range(1, len(cells)) if not cells[i].module.keeps_grid), len(cells)]


def single_parent(cell: RecordedStage) -> Tensor:
    """(n', n): the parent that chose each child of the first image most; a child that none chose goes to the parent
    that gets it by another way.
    """
    if cell.module.residual:
        return torch.eye(cell.given.shape[1], dtype=torch.bool, device=cell.given.device)
    chosen, other = torch.zeros(2, cell.outcome.shape[1], cell.given.shape[1]).to(cell.given)
    for coupling, chooses in _couplings(cell):
        (chosen if chooses else other).add_(coupling.sum(0))
    chosen = torch.where(chosen.sum(0) > 0, chosen, other)
    parents = torch.arange(len(chosen), device=chosen.device)
    return (chosen.argmax(0) == parents.unsqueeze(1)) & (chosen > 0)


def is_strict(cells: Sequence[RecordedStage]) -> Tensor:
    """Whether no child of the first image is coupled to more than one parent, as a tensor without axes."""
    chosen = [coupling for cell in cells for coupling, chooses in _couplings(cell) if chooses]
    return torch.stack([((coupling > 0).any(0).sum(0) <= 1).all() for coupling in chosen]).all()


def _couplings(cell: RecordedStage) -> list[tuple[Tensor, bool]]:
    """The couplings (heads, n', n) of the first image by each way, and whether they are choices."""
    return [(way.messages.dense(way.messages.coupling[:1])[0], way.way.chooses) for way in cell.ways]


def all_regions(levels: Sequence[Level], top: Tensor, min_share: float) -> list[Region]:
    """Every region that carries at least `min_share` of the evidence, parents before children.

    Shapes:
        - top: (n_L,), the shares of the capsules of the highest level
    """
    found: list[Region] = []
    downs = [None if level.down is None else level.down.cpu().numpy() for level in levels]
    waiting: list[tuple[int, np.ndarray, Region | None]] = [(len(levels) - 1, top.cpu().numpy(), None)]
    while waiting:
        level, evidence, parent = waiting.pop()
        for capsules in watershed(evidence, levels[level].width):
            shares = evidence[capsules]
            if shares.sum() < min_share:
                continue
            region = Region(level, tuple(capsules.tolist()), tuple(shares.tolist()), parent)
            found.append(region)
            down = downs[level]
            if down is not None:
                waiting.append((level - 1, shares @ down[capsules], region))
    return found


def choose(regions: Sequence[Region], max_nodes: int) -> list[Region]:
    """At most `max_nodes` regions: paths to the lowest level, first the highest share for each region that is added."""
    paths = [[region] for region in regions if region.level == 0]
    for path in paths:
        while path[-1].parent is not None:
            path.append(path[-1].parent)
    chosen: list[Region] = []
    while paths:
        new = [[region for region in path if region not in chosen] for path in paths]
        worth = [path[0].share / len(added) for path, added in zip(paths, new, strict=True)]
        best = max(range(len(paths)), key=worth.__getitem__)
        if len(chosen) + len(new[best]) <= max_nodes:
            chosen += new[best]
        paths.pop(best)
    return chosen


def watershed(evidence: np.ndarray, width: int) -> list[np.ndarray]:
    """Split what lies on a square grid into hills: each place goes with the highest of those around it, up to a top.

    Places without evidence belong to none. The tops come first, and the highest hill first.

    >>> [hill.tolist() for hill in watershed(np.array([0.0, 1, 0, 3, 2, 1, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]), 4)]
    [[8, 4, 1, 5], [3]]
    """
    grid = np.pad(evidence.reshape(width, width), 1, constant_values=-1)
    around = np.lib.stride_tricks.sliding_window_view(grid, (3, 3)).reshape(-1, 9)  # (n, 9), row by row
    row, column = np.divmod(around.argmax(1), 3)
    summit = np.arange(width * width) + (row - 1) * width + column - 1
    while not np.array_equal(summit[summit], summit):
        summit = summit[summit]
    there = np.flatnonzero(evidence > 0)
    falling = there[np.argsort(-evidence[there], kind="stable")]
    _, first, which = np.unique(summit[falling], return_index=True, return_inverse=True)
    return [falling[which == hill] for hill in np.argsort(first)]
