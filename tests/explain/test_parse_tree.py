"""The parse tree: shares that are exact, no route that is not there, boxes, JSON and SVG."""

import json
import xml.etree.ElementTree as ElementTree
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from parsecaps.data.preparation import Preparation
from parsecaps.data.raw_image import RawImage
from parsecaps.explain.attribution_path import AttributionPath, Target, trace
from parsecaps.explain.evidence import EvidenceFlow, Region, choose, evidence_flow, watershed
from parsecaps.explain.parse_tree import ParseTree, parse_tree
from parsecaps.explain.strict_tree import strict_network
from parsecaps.nn.recorder import RecordedStage, RecordedWay
from parsecaps.nn.routes import RouteTree
from parsecaps.nn.routing import Way
from parsecaps.report import draw_tree
from tests.explain.small_models import KINDS, random_image, small_model
from tests.explain.toy_routing import ToyMessages
from tests.messages import refused


def tree_of(kind: str = "default", **settings: Any) -> tuple[ParseTree, EvidenceFlow, RouteTree]:
    """The tree, the evidence and the trace of a small model, the first with which the image speaks for a concept."""
    for seed, index in product(range(4), range(3)):
        model = small_model(seed, **KINDS[kind])
        image = random_image(model, 1)
        traced = trace(model, image)
        flow = evidence_flow(traced.cells, AttributionPath(traced).route_relevance(Target("concepts", index)))
        if flow.nodes[0].sum() > 0:
            return parse_tree(model, image, index=index, **settings), flow, traced
    raise AssertionError(f"{kind}: no image speaks for any concept")


@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_carries_the_same(kind: str) -> None:
    _, flow, _ = tree_of(kind)
    for node in flow.nodes:
        assert node.sum().item() == pytest.approx(1)
    for i, edges in enumerate(flow.edges):
        torch.testing.assert_close(edges.sum(0), flow.nodes[i])
        torch.testing.assert_close(edges.sum(1), flow.nodes[i + 1])


def walk(cells: tuple[RecordedStage, ...], flow: EvidenceFlow, layer: int, down_to: int) -> torch.Tensor:
    """(n', n): of the evidence of each capsule of a layer, what came from each capsule further down, path by path."""
    if layer == down_to:
        return torch.eye(len(flow.nodes[layer]), dtype=torch.float64)
    edges, node = flow.edges[layer - 1], flow.nodes[layer]
    below = walk(cells, flow, layer - 1, down_to)
    found = torch.zeros(len(node), below.shape[1], dtype=torch.float64)
    for parent, child in edges.nonzero().tolist():
        found[parent] += edges[parent, child] / node[parent] * below[child]
    return found


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "odd size", "bottleneck", "dynamic"])
@pytest.mark.parametrize("settings", [{}, {"max_nodes": 7}, {"max_nodes": 60, "min_share": 0.0}])
def test_shares_are_exact(kind: str, settings: dict[str, Any]) -> None:
    """Each node's share, from the whole flow: through the capsules of its parent, of its parent's parent and so on."""
    tree, flow, traced = tree_of(kind, **settings)
    layers = (0, 1, 2, 4)  # the last cell of each block; the third has two
    by_id, evidence = {node.id: node for node in tree.nodes}, {}
    for node in tree.nodes:
        above = flow.nodes[-1]
        if node.parent != "root":
            parent = by_id[node.parent]
            assert parent.level == node.level + 1
            above = evidence[parent.id] @ walk(traced.cells, flow, layers[parent.level], layers[node.level])
        inside = torch.zeros_like(above)
        inside[list(node.capsules)] = above[list(node.capsules)]
        evidence[node.id] = inside
        assert node.share == pytest.approx(inside.sum().item(), rel=1e-6)
    assert tree.share == pytest.approx(sum(node.share for node in tree.nodes if node.level == 0))
    assert 0 < tree.share <= 1 + 1e-9
    assert len(tree.nodes) <= settings.get("max_nodes", 24)


def test_the_whole_tree_carries_everything() -> None:
    tree, _, _ = tree_of(max_nodes=10_000, min_share=0.0)
    assert tree.share == pytest.approx(1)
    for node in tree.nodes:
        if node.level:
            assert sum(each.share for each in tree.nodes if each.parent == node.id) == pytest.approx(node.share)


def test_more_nodes_carry_more() -> None:
    shares = [tree_of(max_nodes=count, min_share=0.0)[0].share for count in (4, 8, 16, 32)]
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_route_that_is_not_there_is_never_shown(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model, 1)
    reach = []
    for cell in trace(model, image).cells:
        ways = [each.messages.dense(each.messages.coupling)[0] for each in cell.ways]
        reach.append(torch.stack([(way > 0).any(0) for way in ways]).any(0))
    steps = [reach[0], reach[1], (reach[3].double() @ reach[2].double()) > 0]  # from each level to the next
    for index in range(3):
        tree = parse_tree(model, image, index=index, max_nodes=10_000, min_share=0.0)
        by_id = {node.id: node for node in tree.nodes}
        for node in tree.nodes:
            if node.parent != "root":
                rows = steps[node.level][list(by_id[node.parent].capsules)]
                assert rows.any(0)[list(node.capsules)].all()


def test_a_node_is_of_neighbours_and_nothing_hangs() -> None:
    tree, _, traced = tree_of(max_nodes=20, min_share=0.02)
    widths = [traced.widths[layer] for layer in (0, 1, 2, 4)]
    parents = {node.parent for node in tree.nodes}
    assert parents - {"root"} <= {node.id for node in tree.nodes}
    for node in tree.nodes:
        assert node.level == 0 or node.id in parents
        assert node.share >= 0.02
        width = widths[node.level]
        assert (node.row, node.column) == divmod(node.capsules[0], width)
        near, left = {node.capsules[0]}, set(node.capsules[1:])
        while joined := {
            a for a in left for b in near if abs(a // width - b // width) < 2 > abs(a % width - b % width)
        }:
            near, left = near | joined, left - joined
        assert not left
    for level in range(4):
        shares = [node.share for node in tree.nodes if node.level == level]
        assert shares
        assert shares == sorted(shares, reverse=True)
    assert [node.level for node in tree.nodes] == sorted((node.level for node in tree.nodes), reverse=True)


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "odd size", "dynamic"])
def test_in_a_strict_tree_each_capsule_has_one_parent(kind: str) -> None:
    whole, strict = [], []
    for seed, index in product(range(2), range(3)):
        model = small_model(seed, **KINDS[kind])
        image = random_image(model, 1)
        whole.append(parse_tree(model, image, index=index, max_nodes=10_000, min_share=0.0))
        with strict_network(model):
            strict.append(parse_tree(model, image, index=index, max_nodes=10_000, min_share=0.0))

    def twice(tree: ParseTree) -> bool:
        """Whether a capsule is in two nodes, which is to say, has two parents."""
        seen = [(node.level, capsule) for node in tree.nodes for capsule in node.capsules]
        return len(seen) != len(set(seen))

    assert any(tree.nodes for tree in strict)
    assert not any(twice(tree) for tree in strict)
    assert any(twice(tree) for tree in whole)
    assert {tree.strict for tree in strict} == {True}
    assert {tree.strict for tree in whole} == {False}


def test_watershed_by_hand() -> None:
    evidence = torch.tensor([[5.0, 3, 0, 0, 0], [2, 0, 0, 1, 2], [0, 0, 0, 0, 4], [0, 0, 0, 0, 0], [1, 0, 0, 2, 2]])
    assert [hill.tolist() for hill in watershed(evidence.flatten().numpy(), 5)] == [
        [0, 1, 5],
        [14, 9, 8],
        [23, 24],
        [20],
    ]


def test_a_place_is_around_nine_tenths() -> None:
    assert Region(0, (7, 3, 4, 1), (0.5, 0.3, 0.15, 0.05), None).core == (7, 3, 4)
    assert Region(0, (7, 3), (0.04, 0.04), None).core == (7, 3)
    assert Region(0, (7,), (0.5,), None).core == (7,)


def test_the_best_path_is_the_one_with_most_for_each_new_node() -> None:
    top = [Region(1, (0,), (0.6,), None), Region(1, (3,), (0.4,), None)]
    leaves = [Region(0, (i,), (share,), top[i > 1]) for i, share in enumerate((0.35, 0.25, 0.4))]
    assert choose([*top, *leaves], 3) == [leaves[2], top[1]]  # 0.2 a node; then 0.175, for which there is no room
    assert choose([*top, *leaves], 4) == [leaves[2], top[1], leaves[0], top[0]]
    assert set(choose([*top, *leaves], 5)) == {*top, *leaves}


def cell_with(coupling: list[list[float]]) -> RecordedStage:
    """A cell with one way and these couplings (n', n), of which only they matter."""
    c = torch.tensor([[coupling]])
    way = RecordedWay(Way("toy", chooses=True), ToyMessages(torch.zeros(1, c.shape[-1], 1), c), torch.zeros(1))
    return RecordedStage(torch.nn.Identity(), torch.zeros(1), torch.zeros(1), (way,))


def test_a_flow_by_hand() -> None:
    """Three leaves, two capsules, one top: what is against does not flow, nor what leads nowhere."""
    cells = (cell_with([[0.5, 0.5, 0.0], [0.0, 0.4, 0.6]]), cell_with([[0.7, 0.3]]))
    low = (torch.tensor([[[[3.0, 1.0, 9.0], [0.0, -2.0, 5.0]]]]),)
    found = evidence_flow(cells, (low, (torch.tensor([[[[2.0, 2.0]]]]),)))
    assert found.nodes[0].tolist() == pytest.approx([3 / 9, 1 / 9, 5 / 9])  # the 9 has no coupling
    assert found.nodes[1].tolist() == pytest.approx([4 / 9, 5 / 9])
    found = evidence_flow(cells, (low, (torch.tensor([[[[2.0, -1.0]]]]),)))
    assert found.nodes[0].tolist() == pytest.approx([3 / 4, 1 / 4, 0])
    nothing = evidence_flow(cells, (low, (torch.tensor([[[[-2.0, -1.0]]]]),)))
    assert nothing.nodes[0].tolist() == [0, 0, 0]


def test_regions_rest_on_leaves() -> None:
    tree, _, _ = tree_of("odd size")
    boxes = {node.id: node.region for node in tree.nodes}
    for node in tree.nodes:
        below = [boxes[each.id] for each in tree.nodes if each.parent == node.id]
        if node.level == 0:
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
    with refused(ValueError):
        parse_tree(model, image, index=0, preparation=preparation)


def test_a_journey_through_json() -> None:
    tree, _, _ = tree_of()
    assert ParseTree.from_dict(json.loads(json.dumps(tree.to_dict()))) == tree
    with refused(ValueError):
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
    with refused(ValueError):
        parse_tree(model, random_image(model, 2), index=0)
    with refused(ValueError):
        parse_tree(model, random_image(model, 1), index=3)


class TestDrawing:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_it_is_well_formed_and_says_what_it_shows(self, channels: int) -> None:
        model = small_model(in_channels=channels)
        image = random_image(model, 1)
        tree = parse_tree(model, image, index=1, name="dots & <globules>")
        root = ElementTree.fromstring(draw_tree(tree, image[0]))
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
        assert len(root.findall(f"{space}path[@class='route']")) == len(tree.nodes)
        leaves = sum(node.level == 0 for node in tree.nodes)
        assert len(root.findall(f"{space}rect[@class='place']")) == leaves
        assert [i.get("href", "")[:22] for i in root.findall(f"{space}image")] == ["data:image/png;base64,"]

    def test_it_needs_nothing_from_outside(self) -> None:
        tree, _, _ = tree_of()
        drawn = draw_tree(tree, None)
        assert drawn.replace("http://www.w3.org/2000/svg", "").count("http") == 0
        assert "<image" not in drawn
        assert "prefers-color-scheme: dark" in drawn

    def test_everything_lies_inside(self) -> None:
        tree, _, _ = tree_of("odd size")
        root = ElementTree.fromstring(draw_tree(tree, None))
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
        tree, _, _ = tree_of(min_share=1.1)
        assert tree.share == 0
        assert not tree.nodes
        ElementTree.fromstring(draw_tree(tree, None))
