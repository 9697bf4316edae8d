"""Which regions a parse tree shows: neighbouring capsules under one parent, chosen for the evidence that they carry.

A tree has a level for each grid: what a block does on the same grid, where a capsule hears of its neighbours and stays
in its place, is one step. Below each region, the evidence that it got lies on the grid of the level below like hills;
each hill is a region there. So every region has one parent, and its share is exactly the evidence that climbs from it
through its ancestors. The same capsules can be in regions of several parents, unless the tree is strict.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate

import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.explain.climb import Climb
from parsecaps.explain.trace import CellRoutes

CORE = 0.9


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
    """Neighbouring capsules of a level (0 is the lowest) with the share of all evidence that climbs from each of them
    through `parent` and its ancestors; the strongest capsule comes first.
    """

    level: int
    capsules: tuple[int, ...]
    shares: tuple[float, ...]
    parent: "Region | None"

    @property
    def share(self) -> float:
        """That of all its capsules."""
        return sum(self.shares)

    @property
    def core(self) -> tuple[int, ...]:
        """The fewest of its capsules that carry nine tenths of its share."""
        carried = list(accumulate(self.shares))
        return self.capsules[: 1 + sum(each < CORE * carried[-1] for each in carried)]


def tree_levels(cells: Sequence[CellRoutes], widths: Sequence[int], climbed: Climb, strict: bool) -> list[Level]:
    """The grids from the primary one up; the layer that stands for each is that of its block's last cell.

    `strict` leaves out what reached a capsule's parents beside its single one: the axial branch averages the children
    at a parent's place, whatever parent they chose.
    """
    ends = [i for i in range(1, len(cells)) if not cells[i].residual] + [len(cells)]
    levels, below = [Level(0, widths[0], None)], 0
    for end in ends if any(not cell.residual for cell in cells) else []:
        steps: list[Tensor] = []
        for i in range(below, end):
            flow = climbed.edges[i] * single_parent(cells[i]) if strict else climbed.edges[i]
            node = climbed.nodes[i + 1].unsqueeze(1)
            steps.insert(0, torch.where(node > 0, flow / torch.where(node > 0, node, 1), 0))
        levels.append(Level(end, widths[end], reduce(torch.matmul, steps)))
        below = end
    return levels


def single_parent(cell: CellRoutes) -> Tensor:
    """(n', n): the parent that chose each child of the first image most; a child that none chose goes to the parent
    at its place.
    """
    chosen = cell.coupling[0].sum(0)
    if cell.residual:
        return torch.eye(len(chosen), dtype=torch.bool, device=chosen.device)
    if cell.axial is not None:
        chosen = torch.where(chosen.sum(0) > 0, chosen, cell.axial.mean)
    return F.one_hot(chosen.argmax(0), len(chosen)).T.bool() & (chosen > 0)


def is_strict(cells: Sequence[CellRoutes]) -> bool:
    """Whether no child of the first image is coupled to more than one parent."""
    return all(bool(((cell.coupling[0] > 0).any(0).sum(0) <= 1).all()) for cell in cells)


def all_regions(levels: Sequence[Level], top: Tensor, min_share: float) -> list[Region]:
    """Every region that carries at least `min_share` of the evidence, parents before children.

    Shapes:
        - top: (n_L,), the shares of the capsules of the highest level
    """
    found: list[Region] = []
    waiting: list[tuple[int, Tensor, Region | None]] = [(len(levels) - 1, top, None)]
    while waiting:
        level, evidence, parent = waiting.pop()
        for capsules in hills(evidence, levels[level].width):
            shares = evidence[capsules]
            if shares.sum() < min_share:
                continue
            region = Region(level, tuple(capsules.tolist()), tuple(shares.tolist()), parent)
            found.append(region)
            down = levels[level].down
            if down is not None:
                waiting.append((level - 1, shares @ down[capsules], region))
    return found


def choose(regions: Sequence[Region], max_nodes: int) -> list[Region]:
    """At most `max_nodes` regions that carry much from end to end: paths to the lowest level, the best first.

    The best path is the one with the highest share for each region that it adds to those already chosen.
    """
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


def hills(evidence: Tensor, width: int) -> list[Tensor]:
    """Split what lies on a square grid into hills: each place goes with the highest of those around it, up to a top.

    Places without evidence belong to none. The tops come first, and the highest hill first.

    >>> hills(torch.tensor([0.0, 1, 0, 3, 2, 1, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]), 4)
    [tensor([8, 4, 1, 5]), tensor([3])]
    """
    grid = F.pad(evidence.view(1, 1, width, width), (1, 1, 1, 1), value=-1.0)
    around = F.unfold(grid, 3)[0]  # (9, n), the places around each row by row
    place = torch.arange(width * width, device=evidence.device)
    offset = torch.tensor([dy * width + dx for dy in (-1, 0, 1) for dx in (-1, 0, 1)], device=evidence.device)
    summit = place + offset[around.argmax(0)]
    while not torch.equal(summit[summit], summit):
        summit = summit[summit]
    there = place[evidence > 0]
    falling = there[evidence[there].argsort(descending=True, stable=True)]
    by_top: dict[int, list[int]] = {}
    for capsule, top in zip(falling.tolist(), summit[falling].tolist(), strict=True):
        by_top.setdefault(top, []).append(capsule)
    return [torch.tensor(hill, device=evidence.device) for hill in by_top.values()]
