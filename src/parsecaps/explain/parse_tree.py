"""The parse tree of one image: from a diagnosis or a concept down to image regions, strongest routes first."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from parsecaps.data.preparation import Preparation
from parsecaps.explain.attribution_path import AttributionPath, Target, trace
from parsecaps.explain.evidence import (
    Level,
    Region,
    all_regions,
    choose,
    evidence_flow,
    is_strict,
    tree_levels,
)
from parsecaps.explain.route_maps import Box, PrimaryGrid, bounding_box
from parsecaps.files.untrusted import checked
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.routes import About, RouteTree

VERSION = 2  # 1 had a node for each capsule of each cell, and several parents for a node
MAX_NODES = 24
ROOT = "root"


@dataclass(frozen=True)
class TreeNode:
    """Neighbouring capsules of one grid, which sent their evidence to the same parent.

    `level` is 0 for the primary capsules and one more for each block. `capsules` are counted row by row from 0, the one
    with most evidence first; `row`, `column` and `activity`, its length, are of that one. `share` is how much of all
    evidence flows from them through `parent`, a node's id or "root". `place` is the box around those that carry nine
    tenths of it, `region` the box around the primary capsules below them, in pixels of the prepared image: top, left,
    bottom, right. `original` is the region in the original image.
    """

    id: str
    parent: str
    level: int
    name: str
    capsules: tuple[int, ...]
    row: int
    column: int
    activity: float
    share: float
    place: Box
    region: Box
    original: Box | None = None


@dataclass(frozen=True)
class ParseTree:
    """The strongest routes of one image to one target.

    `value` is the concept's presence or the class's logit, `neutral` that of a picture with nothing in it, and `share`
    how much of all evidence takes the routes shown. `strict`: no capsule had more than one parent; otherwise the same
    capsule can be in several nodes. Nodes come top level first, and the strongest first within a level.
    """

    about: About
    index: int
    name: str
    value: float
    neutral: float
    share: float
    strict: bool
    image_size: int
    nodes: tuple[TreeNode, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `version` changes when the fields do."""
        return {"version": VERSION, **asdict(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ParseTree":
        if values.get("version") != VERSION:
            raise ValueError(f"the parse tree has version {values.get('version')!r}, not {VERSION}; make it again")
        plain = {key: value for key, value in values.items() if key != "version"}
        return checked(cls, plain, "the parse tree", "make it again")


def parse_tree(
    model: PretrainedModel,
    image: Tensor,
    *,
    about: About = "concepts",
    index: int,
    name: str = "",
    max_nodes: int = MAX_NODES,
    min_share: float = 0.01,
    preparation: Preparation | None = None,
    original_shape: tuple[int, int] | None = None,
    path: AttributionPath | None = None,
) -> ParseTree:
    """The parse tree of `image` (1, channels, size, size) for the concept or class `index`.

    Its nodes have at least `min_share` of all evidence each; none where the image speaks against the target everywhere.
    With the preparation and the shape (height, width) of the original image, regions are also given in its pixels. The
    `path` of the image's trace serves any number of trees.

    >>> from parsecaps.models import ParseCaps
    >>> _ = torch.manual_seed(0)
    >>> model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    >>> tree = parse_tree(model, torch.rand(1, 1, 32, 32), index=0)
    >>> tree.nodes[0].parent, tree.nodes[-1].level, tree.share > 0
    ('root', 0, True)
    """
    if len(image) != 1:
        raise ValueError(f"a parse tree is of one image; {len(image)} were given")
    if (preparation is None) != (original_shape is None):
        raise ValueError("give both the preparation and the original image's shape, or neither")
    path, target = path or AttributionPath(trace(model, image)), Target(about, index)
    traced, leaves = path.trace, path.leaf_attribution(target)
    flow = evidence_flow(traced.cells, path.route_relevance(target))
    strict = bool(is_strict(traced.cells))
    levels = tree_levels(traced.cells, traced.widths, flow, strict)
    shown = choose(all_regions(levels, flow.nodes[levels[-1].layer], min_share), max_nodes)
    return ParseTree(
        about=about,
        index=index,
        name=name or f"{'concept' if about == 'concepts' else 'class'} {index}",
        value=leaves.after.item(),
        neutral=leaves.before.item(),
        share=sum(region.share for region in shown if region.level == 0),
        strict=strict,
        image_size=traced.image.shape[-1],
        nodes=_nodes(traced, levels, shown, preparation, original_shape),
    )


def _nodes(
    traced: RouteTree,
    levels: Sequence[Level],
    shown: Sequence[Region],
    preparation: Preparation | None,
    original_shape: tuple[int, int] | None,
) -> tuple[TreeNode, ...]:
    grid = PrimaryGrid.of(traced.initial, traced.image.shape[-1])
    ordered = sorted(shown, key=lambda region: (-region.level, -region.share))
    ids = {region: f"{region.level}:{number}" for number, region in enumerate(ordered)}
    boxes = {region: grid.bounding_box(region.core, _halvings(traced, levels[region.level])) for region in ordered}
    rests: dict[Region, Box] = {}
    for region in reversed(ordered):  # from the leaves up
        below = [rests[child] for child in ordered if child.parent is region]
        rests[region] = bounding_box(below) if below else boxes[region]
    nodes = []
    for region in ordered:
        level, strongest = levels[region.level], region.capsules[0]
        nodes.append(
            TreeNode(
                id=ids[region],
                parent=ROOT if region.parent is None else ids[region.parent],
                level=region.level,
                name=f"block {region.level}" if region.level else "primary capsules",
                capsules=region.capsules,
                row=strongest // level.width,
                column=strongest % level.width,
                activity=traced.layers[level.layer][0, strongest].norm().item(),
                share=region.share,
                place=boxes[region],
                region=rests[region],
                original=_original(rests[region], preparation, original_shape),
            )
        )
    return tuple(nodes)


def _halvings(traced: RouteTree, level: Level) -> int:
    return sum(not cell.module.keeps_grid for cell in traced.cells[: level.layer])


def _original(region: Box, preparation: Preparation | None, shape: tuple[int, int] | None) -> Box | None:
    if preparation is None or shape is None:
        return None
    mask = torch.zeros(preparation.size, preparation.size)
    mask[region[0] : region[2], region[1] : region[3]] = 1
    inside = preparation.to_original(mask, shape) > 0.5
    rows, columns = inside.any(1).nonzero()[:, 0].tolist(), inside.any(0).nonzero()[:, 0].tolist()
    if not rows or not columns:  # in the padding around the image
        return None
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1
