"""The parse tree: shares that are exact, no route that is not there, boxes, JSON and SVG."""

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from tests.explain.small_models import KINDS, random_image, small_model

from parsecaps.data.preparation import Preparation
from parsecaps.data.raw_image import RawImage
from parsecaps.explain.climb import Climb, climb
from parsecaps.explain.parse_tree import ParseTree, parse_tree
from parsecaps.explain.path import EdgeRelevance, edge_relevance
from parsecaps.explain.routes import trace


def tree_of(kind: str = "default", **settings: object) -> tuple[ParseTree, Climb]:
    """The tree and the climb of a small model, the first with which the image speaks for a concept."""
    for seed, index in product(range(4), range(3)):
        model = small_model(seed, **KINDS[kind])
        image = random_image(model, 1)
        routes = trace(model, image)
        climbed = climb(routes.cells, edge_relevance(routes, "concepts", index)[0])
        if climbed.nodes[0].sum() > 0:
            return parse_tree(model, image, index=index, **settings), climbed
    raise AssertionError(f"{kind}: no image speaks for any concept")


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_carries_the_same(kind: str) -> None:
    _, climbed = tree_of(kind)
    for node in climbed.nodes:
        assert node.sum().item() == pytest.approx(1)
    for i, edges in enumerate(climbed.edges):
        torch.testing.assert_close(edges.sum(0), climbed.nodes[i])
        torch.testing.assert_close(edges.sum(1), climbed.nodes[i + 1])


def carried(tree: ParseTree, node: str, arriving: float) -> float:
    """The share of the whole that takes shown routes below a node, by walking every path."""
    below = [edge for edge in tree.edges if edge.parent == node]
    if node.startswith("0:"):
        return arriving
    share = 1.0 if node == "root" else next(n.share for n in tree.nodes if n.id == node)
    return sum(carried(tree, edge.child, arriving * edge.share / share) for edge in below)


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "odd size", "bottleneck"])
@pytest.mark.parametrize("settings", [{}, {"max_children": 1}, {"max_children": 2, "min_share": 0.03}])
def test_the_share_is_exact(kind: str, settings: dict[str, object]) -> None:
    tree, _ = tree_of(kind, **settings)
    assert tree.share == pytest.approx(carried(tree, "root", 1.0), rel=1e-6)
    assert 0 < tree.share <= 1


def test_the_whole_tree_carries_everything() -> None:
    tree, _ = tree_of(max_children=256, min_share=0.0)
    assert tree.share == pytest.approx(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_route_that_is_not_there_is_never_shown(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model, 1)
    routes = trace(model, image)
    trees = [parse_tree(model, image, index=index, max_children=256, min_share=0.0) for index in range(3)]
    for edge in (edge for tree in trees for edge in tree.edges):
        if edge.parent == "root":
            continue
        (layer, parent), (below, child) = (tuple(map(int, end.split(":"))) for end in (edge.parent, edge.child))
        assert below == layer - 1
        cell = routes.cells[layer - 1]
        mean = cell.coupling[0, :, parent, child].mean().item()
        assert edge.coupling == pytest.approx(mean)
        own = cell.residual and parent == child
        averaged = cell.axial is not None and cell.axial.mean[parent, child] > 0
        assert mean > 0 or own or averaged
        assert edge.share > 0


def test_the_strongest_come_first_and_nothing_hangs() -> None:
    tree, _ = tree_of(max_children=2, min_share=0.02)
    parents, children = {edge.parent for edge in tree.edges}, {edge.child for edge in tree.edges}
    for node in tree.nodes:
        assert node.id in children
        assert node.layer == 0 or node.id in parents
    for layer in range(5):
        shares = [node.share for node in tree.nodes if node.layer == layer]
        assert shares
        assert shares == sorted(shares, reverse=True)
    assert all(edge.share >= 0.02 for edge in tree.edges)
    assert max(sum(edge.parent == node.id for edge in tree.edges) for node in tree.nodes) <= 2


def test_a_climb_by_hand() -> None:
    """Three leaves, two capsules, one top: what is against does not climb, nor what leads nowhere."""
    model = small_model(cells=(1, 1, 1))
    cell = trace(model, random_image(model, 1)).cells[0]
    low = replace(cell, coupling=torch.tensor([[[[0.5, 0.5, 0.0], [0.0, 0.4, 0.6]]]]))
    high = replace(cell, coupling=torch.tensor([[[[0.7, 0.3]]]]))
    low_brought = EdgeRelevance(torch.tensor([[[[3.0, 1.0, 9.0], [0.0, -2.0, 5.0]]]]), None, None)
    found = climb((low, high), (low_brought, EdgeRelevance(torch.tensor([[[[2.0, 2.0]]]]), None, None)))
    assert found.nodes[0].tolist() == pytest.approx([3 / 9, 1 / 9, 5 / 9])  # the 9 has no coupling
    assert found.nodes[1].tolist() == pytest.approx([4 / 9, 5 / 9])
    found = climb((low, high), (low_brought, EdgeRelevance(torch.tensor([[[[2.0, -1.0]]]]), None, None)))
    assert found.nodes[0].tolist() == pytest.approx([3 / 4, 1 / 4, 0])
    nothing = climb((low, high), (low_brought, EdgeRelevance(torch.tensor([[[[-2.0, -1.0]]]]), None, None)))
    assert nothing.nodes[0].tolist() == [0, 0, 0]


def test_regions_rest_on_leaves() -> None:
    tree, _ = tree_of("odd size")
    boxes = {node.id: node.region for node in tree.nodes}
    for node in tree.nodes:
        below = [boxes[edge.child] for edge in tree.edges if edge.parent == node.id]
        if node.layer == 0:
            assert node.region == node.place
        else:
            tops, lefts, bottoms, rights = zip(*below, strict=True)
            assert node.region == (min(tops), min(lefts), max(bottoms), max(rights))
        assert 0 <= node.place[0] < node.place[2] <= 41


def test_regions_in_the_original_image() -> None:
    model = small_model(in_channels=3, image_size=32, grid_width=16)
    preparation = Preparation(32, 3)
    pixels = np.zeros((64, 128, 3), np.uint8)  # wide: a quarter of the square above and below is padding
    pixels[10:30, 40:60] = 200
    image = preparation.prepare(RawImage(pixels, (0, 255))).double().unsqueeze(0)
    tree = parse_tree(model, image, index=0, preparation=preparation, original_shape=(64, 128))
    for node in tree.nodes:
        top, left, bottom, right = node.region
        inside = (max(top, 8) - 8, left, min(bottom, 24) - 8, right)
        if inside[0] < inside[2]:
            assert node.original is not None
            assert np.abs(np.array(node.original) - 4 * np.array(inside)).max() <= 2
        else:
            assert node.original is None
    with pytest.raises(ValueError, match="give both the preparation and the original image's shape, or neither"):
        parse_tree(model, image, index=0, preparation=preparation)


def test_a_journey_through_json() -> None:
    tree, _ = tree_of()
    assert ParseTree.from_dict(json.loads(tree.to_json())) == tree
    with pytest.raises(ValueError, match="version 7, not 1; make it again"):
        ParseTree.from_dict({**tree.to_dict(), "version": 7})


def test_classes_and_names() -> None:
    model = small_model(head="bottleneck")
    image = random_image(model, 1)
    tree = parse_tree(model, image, about="classes", index=1, name="melanoma")
    assert tree.name == "melanoma"
    assert tree.value == pytest.approx(model(image).logits[0, 1].item())
    assert parse_tree(model, image, about="classes", index=1).name == "class 1"


def test_one_image_and_a_known_target() -> None:
    model = small_model()
    with pytest.raises(ValueError, match="a parse tree is of one image; 2 were given"):
        parse_tree(model, random_image(model, 2), index=0)
    with pytest.raises(ValueError, match="3 is none of the model's concepts; choose from 0 to 2"):
        parse_tree(model, random_image(model, 1), index=3)


class TestDrawing:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_it_is_well_formed_and_says_what_it_shows(self, channels: int) -> None:
        model = small_model(in_channels=channels)
        image = random_image(model, 1)
        tree = parse_tree(model, image, index=1, name="dots & <globules>")
        root = ElementTree.fromstring(tree.to_svg(image[0]))
        space = "{http://www.w3.org/2000/svg}"
        assert root.get("role") == "img"
        labels = (root.get("aria-labelledby") or "").split()
        texts = {
            element.get("id"): element.text for element in root if element.tag in (f"{space}title", f"{space}desc")
        }
        assert list(texts) == labels
        assert texts[labels[0]] == "Parse tree: dots & <globules>"
        assert f"{tree.share:.0%} of the evidence" in (texts[labels[1]] or "")
        assert len(root.findall(f"{space}circle")) == len(tree.nodes) + 1
        assert len(root.findall(f"{space}path[@class='route']")) == len(tree.edges)
        leaves = sum(node.layer == 0 for node in tree.nodes)
        assert len(root.findall(f"{space}rect[@class='place']")) == leaves
        assert [i.get("href", "")[:22] for i in root.findall(f"{space}image")] == ["data:image/png;base64,"]

    def test_it_needs_nothing_from_outside(self) -> None:
        tree, _ = tree_of()
        drawn = tree.to_svg()
        assert drawn.replace("http://www.w3.org/2000/svg", "").count("http") == 0
        assert "<image" not in drawn
        assert "prefers-color-scheme: dark" in drawn

    def test_everything_lies_inside(self) -> None:
        tree, _ = tree_of("odd size")
        root = ElementTree.fromstring(tree.to_svg())
        _, _, width, height = map(float, (root.get("viewBox") or "").split())
        for circle in root.iter("{http://www.w3.org/2000/svg}circle"):
            x, y, r = (float(circle.get(name) or 0) for name in ("cx", "cy", "r"))
            assert r <= x <= width - r
            assert r <= y <= height - r
        for rect in root.iter("{http://www.w3.org/2000/svg}rect"):
            x, y, w, h = (float(rect.get(name) or 0) for name in ("x", "y", "width", "height"))
            assert 0 <= x <= x + w <= width
            assert 0 <= y <= y + h <= height

    def test_a_tree_without_evidence(self) -> None:
        tree, _ = tree_of(min_share=1.1)
        assert tree.share == 0
        assert not tree.nodes
        ElementTree.fromstring(tree.to_svg())
