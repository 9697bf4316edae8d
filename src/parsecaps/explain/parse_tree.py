"""The parse tree of one image: from a diagnosis or a concept down to image regions, strongest routes first."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parsecaps.data.preparation import Preparation
from parsecaps.explain.climb import climb
from parsecaps.explain.path import edge_relevance
from parsecaps.explain.places import Box, Places, hull
from parsecaps.explain.targets import About
from parsecaps.explain.trace import Routes, trace
from parsecaps.explain.tree_regions import Level, Region, all_regions, choose, is_strict, tree_levels

VERSION = 2  # 1 had a node for each capsule of each cell, and several parents for a node
MAX_NODES = 24
ROOT = "root"


@dataclass(frozen=True)
class TreeNode:
    """Neighbouring capsules of one grid, which sent their evidence to the same parent.

    `level` is 0 for the primary capsules and one more for each block. `capsules` are counted row by row from 0, the one
    with most evidence first; `row`, `column` and `activity`, its length, are of that one. `share` is how much of all
    evidence climbs from them through `parent`, a node's id or "root". `place` is the box around the strongest of them,
    which carry nine tenths of that, and `region` the box around the places of the primary capsules that they are shown
    to rest on, in pixels of the prepared image: top, left, bottom, right. What a primary capsule sees is a little more
    than its place, for convolutions come before it. `original` is the region in the original image.
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
    how much of all evidence takes the routes shown, from end to end. `strict` says that no capsule had more than one
    parent; otherwise the same capsule can be in several nodes, once for each parent. Nodes come top level first, and
    the strongest first within a level.
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

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "ParseTree":
        """What `to_dict` wrote, also after a journey through JSON."""
        if values.get("version") != VERSION:
            raise ValueError(f"the parse tree has version {values.get('version')!r}, not {VERSION}; make it again")
        plain = {key: value for key, value in values.items() if key != "version"}
        nodes = tuple(TreeNode(**{key: _frozen(value) for key, value in node.items()}) for node in plain["nodes"])
        return cls(**{**plain, "nodes": nodes})

    def to_svg(self, image: Tensor | None = None) -> str:
        """A self-contained drawing, with the prepared image (channels, size, size) below if it is given."""
        from parsecaps.report.tree_drawing import draw_tree

        return draw_tree(self, image)


def parse_tree(
    model: nn.Module,
    image: Tensor,
    *,
    about: About = "concepts",
    index: int,
    name: str = "",
    max_nodes: int = MAX_NODES,
    min_share: float = 0.01,
    preparation: Preparation | None = None,
    original_shape: tuple[int, int] | None = None,
) -> ParseTree:
    """The parse tree of `image` (1, channels, size, size) for the concept or class `index`.

    It has at most `max_nodes` nodes, each with at least `min_share` of all evidence, chosen to carry much of it from
    the image to the target. An image that speaks against the target everywhere has a tree without nodes.
    With the preparation and the shape (height, width) of the original image, regions are also given in its pixels.

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
    routes = trace(model, image)
    brought, before, after = edge_relevance(routes, about, index)
    climbed = climb(routes.cells, brought)
    strict = is_strict(routes.cells)
    levels = tree_levels(routes.cells, routes.widths, climbed, strict)
    shown = choose(all_regions(levels, climbed.nodes[levels[-1].layer], min_share), max_nodes)
    return ParseTree(
        about=about,
        index=index,
        name=name or f"{'concept' if about == 'concepts' else 'class'} {index}",
        value=after.item(),
        neutral=before.item(),
        share=sum(region.share for region in shown if region.level == 0),
        strict=strict,
        image_size=image.shape[-1],
        nodes=_nodes(routes, levels, shown, preparation, original_shape),
    )


def _nodes(
    routes: Routes,
    levels: Sequence[Level],
    shown: Sequence[Region],
    preparation: Preparation | None,
    original_shape: tuple[int, int] | None,
) -> tuple[TreeNode, ...]:
    places = Places.of(routes.initial, routes.image.shape[-1])
    ordered = sorted(shown, key=lambda region: (-region.level, -region.share))
    ids = {region: f"{region.level}:{number}" for number, region in enumerate(ordered)}
    boxes = {
        region: hull([places.box(capsule, _halvings(routes, levels[region.level])) for capsule in region.core])
        for region in ordered
    }
    rests: dict[Region, Box] = {}
    for region in reversed(ordered):  # from the leaves up
        below = [rests[child] for child in ordered if child.parent is region]
        rests[region] = hull(below) if below else boxes[region]
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
                activity=routes.layers[level.layer][0, strongest].norm().item(),
                share=region.share,
                place=boxes[region],
                region=rests[region],
                original=_original(rests[region], preparation, original_shape),
            )
        )
    return tuple(nodes)


def _halvings(routes: Routes, level: Level) -> int:
    """How often the grid was halved below a level."""
    return sum(not cell.residual for cell in routes.cells[: level.layer])


def _original(region: Box, preparation: Preparation | None, shape: tuple[int, int] | None) -> Box | None:
    """The region in the pixels of the original image."""
    if preparation is None or shape is None:
        return None
    mask = torch.zeros(preparation.size, preparation.size)
    mask[region[0] : region[2], region[1] : region[3]] = 1
    inside = preparation.to_original(mask, shape) > 0.5
    rows, columns = inside.any(1).nonzero()[:, 0].tolist(), inside.any(0).nonzero()[:, 0].tolist()
    if not rows or not columns:  # in the padding around the image
        return None
    return rows[0], columns[0], rows[-1] + 1, columns[-1] + 1


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
