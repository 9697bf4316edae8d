"""The parse tree of one image: from a diagnosis or a concept down to image regions, strongest routes first."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from parsecaps.data.preparation import Preparation
from parsecaps.explain.climb import Climb, climb
from parsecaps.explain.path import edge_relevance
from parsecaps.explain.places import Box, Places, hull
from parsecaps.explain.routes import CellRoutes, Routes, trace
from parsecaps.explain.targets import About

VERSION = 1


@dataclass(frozen=True)
class TreeNode:
    """A capsule of the tree.

    `layer` is 0 for the primary capsules and one more for each cell. `activity` is the capsule's length, `share` how
    much of all evidence climbs through it. `place` is where it lies, `region` the box around the primary capsules that
    it is shown to rest on, in pixels of the prepared image: top, left, bottom, right. What a primary capsule sees is a
    little more than its place, for convolutions come before it. `original` is the region in the original image.
    """

    id: str
    layer: int
    name: str
    row: int
    column: int
    activity: float
    share: float
    place: Box
    region: Box
    original: Box | None = None


@dataclass(frozen=True)
class TreeEdge:
    """A route from a child to a parent; the parent of the top capsules is "root".

    `coupling` is the mean over the heads, and None below the root. It is 0 where a child reached its parent by the
    axial branch, or by staying at its place, alone. `share` is how much of all evidence climbs this route.
    """

    parent: str
    child: str
    coupling: float | None
    share: float


@dataclass(frozen=True)
class ParseTree:
    """The strongest routes of one image to one target.

    `value` is the concept's presence or the class's logit, `neutral` that of a picture with nothing in it, and `share`
    how much of all evidence takes the routes shown, from end to end. Nodes and edges come top layer first, and the
    strongest first within a layer.
    """

    about: About
    index: int
    name: str
    value: float
    neutral: float
    share: float
    image_size: int
    nodes: tuple[TreeNode, ...]
    edges: tuple[TreeEdge, ...]

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
        edges = tuple(TreeEdge(**edge) for edge in plain["edges"])
        return cls(**{**plain, "nodes": nodes, "edges": edges})

    def to_svg(self, image: Tensor | None = None) -> str:
        """A self-contained drawing, with the prepared image (channels, size, size) below if it is given."""
        from parsecaps.explain.tree_drawing import draw_tree

        return draw_tree(self, image)


def parse_tree(
    model: nn.Module,
    image: Tensor,
    *,
    about: About = "concepts",
    index: int,
    name: str = "",
    max_children: int = 3,
    min_share: float = 0.01,
    preparation: Preparation | None = None,
    original_shape: tuple[int, int] | None = None,
) -> ParseTree:
    """The parse tree of `image` (1, channels, size, size) for the concept or class `index`.

    Each node shows its strongest `max_children` routes, of those that carry at least `min_share` of all evidence. An
    image that speaks against the target everywhere has a tree without nodes.
    With the preparation and the shape (height, width) of the original image, regions are also given in its pixels.

    >>> from parsecaps.models import ParseCaps
    >>> _ = torch.manual_seed(0)
    >>> model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    >>> tree = parse_tree(model, torch.rand(1, 1, 32, 32), index=0)
    >>> [node.id for node in tree.nodes][-1][0], tree.share > 0
    ('0', True)
    """
    if len(image) != 1:
        raise ValueError(f"a parse tree is of one image; {len(image)} were given")
    if (preparation is None) != (original_shape is None):
        raise ValueError("give both the preparation and the original image's shape, or neither")
    routes = trace(model, image)
    brought, before, after = edge_relevance(routes, about, index)
    climbed = climb(routes.cells, brought)
    kept = _prune(climbed, max_children, min_share)
    return ParseTree(
        about=about,
        index=index,
        name=name or f"{'concept' if about == 'concepts' else 'class'} {index}",
        value=after.item(),
        neutral=before.item(),
        share=_carried(climbed, kept),
        image_size=image.shape[-1],
        nodes=_nodes(routes, climbed, kept, preparation, original_shape),
        edges=_edges(routes.cells, climbed, kept),
    )


def _prune(climbed: Climb, max_children: int, min_share: float) -> list[Tensor]:
    """Which routes are shown: the root's (1, n_L), then those of each cell (n', n) from the last to the first."""
    kept = []
    shown = torch.ones(1, dtype=torch.bool)
    for flow in (climbed.nodes[-1].unsqueeze(0), *reversed(climbed.edges)):
        strongest = flow.topk(min(max_children, flow.shape[1]), 1).indices
        few = torch.zeros_like(flow, dtype=torch.bool).scatter(1, strongest, True)
        kept.append(few & (flow >= min_share) & (flow > 0) & shown.unsqueeze(1))
        shown = kept[-1].any(0)
    for i in range(len(kept) - 1, 0, -1):  # from the leaves up: what ends before a leaf is not shown
        kept[i - 1] &= kept[i].any(1)
    return kept


def _carried(climbed: Climb, kept: list[Tensor]) -> float:
    """How much of all evidence takes only routes that are shown, from a leaf to the root."""
    carried = torch.where(kept[0][0], climbed.nodes[-1], 0)
    for flow, node, keep in zip(reversed(climbed.edges), reversed(climbed.nodes[1:]), kept[1:], strict=True):
        part = torch.where(node > 0, carried / torch.where(node > 0, node, 1), 0)
        carried = part @ torch.where(keep, flow, 0)
    return carried.sum().item()


def _nodes(
    routes: Routes,
    climbed: Climb,
    kept: list[Tensor],
    preparation: Preparation | None,
    original_shape: tuple[int, int] | None,
) -> tuple[TreeNode, ...]:
    places = Places.of(routes.initial, routes.image.shape[-1])
    halvings = [0]
    for cell in routes.cells:
        halvings.append(halvings[-1] + (not cell.residual))
    regions: dict[tuple[int, int], Box] = {}
    nodes: list[TreeNode] = []
    for layer, (capsules, width) in enumerate(zip(routes.layers, routes.widths, strict=True)):
        shown = kept[-1 - layer].any(0).nonzero()[:, 0].tolist()
        lengths = capsules[0].norm(dim=-1)
        group = []
        for capsule in shown:
            place = places.box(capsule, halvings[layer])
            below = kept[-layer][capsule].nonzero()[:, 0].tolist() if layer else []
            region = hull([regions[layer - 1, child] for child in below]) if layer else place
            regions[layer, capsule] = region
            group.append(
                TreeNode(
                    id=f"{layer}:{capsule}",
                    layer=layer,
                    name=_layer_name(layer, halvings),
                    row=capsule // width,
                    column=capsule % width,
                    activity=lengths[capsule].item(),
                    share=climbed.nodes[layer][capsule].item(),
                    place=place,
                    region=region,
                    original=_original(region, preparation, original_shape),
                )
            )
        nodes = sorted(group, key=lambda node: -node.share) + nodes
    return tuple(nodes)


def _edges(cells: tuple[CellRoutes, ...], climbed: Climb, kept: list[Tensor]) -> tuple[TreeEdge, ...]:
    top = len(cells)
    shares = climbed.nodes[-1]
    edges = [
        TreeEdge("root", f"{top}:{child}", None, shares[child].item()) for child in kept[0][0].nonzero()[:, 0].tolist()
    ]
    edges.sort(key=lambda edge: -edge.share)
    for layer in range(top, 0, -1):
        strength, flow = cells[layer - 1].coupling[0].mean(0), climbed.edges[layer - 1]
        group = [
            TreeEdge(f"{layer}:{p}", f"{layer - 1}:{c}", strength[p, c].item(), flow[p, c].item())
            for p, c in kept[top - layer + 1].nonzero().tolist()
        ]
        edges += sorted(group, key=lambda edge: -edge.share)
    return tuple(edges)


def _layer_name(layer: int, halvings: list[int]) -> str:
    """A layer's name in the table of the model.

    >>> [_layer_name(layer, [0, 1, 2, 2]) for layer in range(4)]
    ['primary capsules', 'block 1 cell 1', 'block 2 cell 1', 'block 2 cell 2']
    """
    if layer == 0:
        return "primary capsules"
    block = halvings[layer]
    return f"block {block} cell {layer - halvings.index(block) + 1}"


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
