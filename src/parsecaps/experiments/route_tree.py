"""The routes of one image as a tree: who a top capsule listens to, cell by cell, down to the primary capsules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from parsecaps.models.parsecaps import ParseCaps
from parsecaps.nn.couplings import Coupling, RecordedCoupling, record_couplings, replace_couplings, uniform
from parsecaps.nn.heads import FullyCaps
from parsecaps.types import Output

BRANCHING = 2  # children shown where the grid changes; where it does not, one


class Sparsity(NamedTuple):
    """How many couplings of a cell's branch are exactly zero: of all, and of those within the parents' reach."""

    cell: str
    branch: str
    zero: float
    zero_in_reach: float


@dataclass(frozen=True)
class RouteNode:
    """A capsule, how strongly its parent listens to it (mean over the heads), and its own children.

    `box` is its place in the image: top, left, bottom and right in pixels. What it sees is more, since convolutions
    come before the primary capsules.
    """

    layer: str
    capsule: int
    box: tuple[int, int, int, int]
    coupling: float | None = None
    children: list["RouteNode"] = field(default_factory=list)

    def leaves(self) -> list["RouteNode"]:
        """The primary capsules below this node."""
        return [leaf for child in self.children for leaf in child.leaves()] if self.children else [self]


@dataclass(frozen=True)
class Routes:
    """One forward pass of one image: what came out, the tree below one top capsule, and how sparse it is."""

    output: Output
    tree: RouteNode
    sparsity: list[Sparsity]


@torch.no_grad()
def trace_routes(model: ParseCaps, image: Tensor) -> Routes:
    """Run the model once on `image` (1, C, H, W), and follow the top capsule that adds most to the likeliest class."""
    zero_in_reach: list[float] = []

    def note(module: Coupling, c: Tensor) -> Tensor:
        zero_in_reach.append(_zeros(c[uniform(module, c) > 0]))
        return c

    model.eval()
    with record_couplings(model) as couplings, replace_couplings(model, note):
        output: Output = model(image)
    rows = [
        Sparsity(cell_name(recorded.name), recorded.branch, _zeros(recorded.coupling), in_reach)
        for recorded, in_reach in zip(couplings, zero_in_reach, strict=True)
    ]
    top = _weightiest(model, model.top_capsules(image), output)
    sparse = [recorded for recorded in couplings if recorded.branch == "sparse"]
    tree = _descend(sparse[::-1], top, model.image_size)
    return Routes(output, tree, rows)


def cell_name(path: str) -> str:
    """The name of a cell in the layer table.

    >>> cell_name("blocks.1.0")
    'block 2 cell 1'
    """
    block, cell = path.split(".")[1:3]
    return f"block {int(block) + 1} cell {int(cell) + 1}"


def _zeros(c: Tensor) -> float:
    return (c == 0).double().mean().item()


def _weightiest(model: ParseCaps, top: Tensor, output: Output) -> int:
    """The top capsule that lengthens the likeliest class capsule most; without class capsules, the longest."""
    if not isinstance(model.classes, FullyCaps) or output.class_capsules is None:
        return int(top[0].norm(dim=-1).argmax())
    likeliest = int(output.logits[0].argmax())
    direction = output.class_capsules[0, likeliest]
    return int((model.classes.readout.shares(top)[0, likeliest] @ direction).argmax())


def _descend(
    cells: Sequence[RecordedCoupling], capsule: int, image_size: int, coupling: float | None = None
) -> RouteNode:
    """The node of a capsule that the first of `cells` made, and the strongest routes below it."""
    mean = cells[0].coupling[0].mean(0)  # (parents, children)
    parents, num_children = mean.shape
    strength, index = mean[capsule].topk(BRANCHING if parents != num_children else 1)
    children = []
    for share, child in zip(strength.tolist(), index.tolist(), strict=True):
        if len(cells) > 1:
            children.append(_descend(cells[1:], child, image_size, share))
        else:
            children.append(RouteNode("primary capsules", child, _box(child, num_children, image_size), share))
    return RouteNode(cell_name(cells[0].name), capsule, _box(capsule, parents, image_size), coupling, children)


def _box(capsule: int, num_capsules: int, image_size: int) -> tuple[int, int, int, int]:
    """The pixels of one of `num_capsules` places on a square grid."""
    width = math.isqrt(num_capsules)
    row, column = divmod(capsule, width)
    edges = [round(i * image_size / width) for i in range(width + 1)]
    return edges[row], edges[column], edges[row + 1], edges[column + 1]
