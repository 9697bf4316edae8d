"""The tree of one image: it follows the couplings that were recorded."""

import pytest
import torch

from parsecaps.experiments.route_tree import trace_routes
from parsecaps.models import ParseCaps
from parsecaps.nn import record_couplings


@pytest.fixture
def model() -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=3).eval()


def test_the_tree_reaches_from_the_top_to_the_primary_capsules(model: ParseCaps) -> None:
    image = torch.rand(1, 1, 32, 32)
    routes = trace_routes(model, image)
    with record_couplings(model) as recorded:
        expected = model(image)
    assert torch.equal(routes.output.logits, expected.logits)
    cells = [r.coupling[0].mean(0) for r in recorded if r.branch == "sparse"][::-1]
    nodes = [routes.tree]
    for mean in cells:
        for node in nodes:
            assert node.children
            best = mean[node.capsule].sort(descending=True).values[: len(node.children)]
            assert [child.coupling for child in node.children] == pytest.approx(best.tolist())
        nodes = [child for node in nodes for child in node.children]
    assert {node.layer for node in nodes} == {"primary capsules"}
    assert nodes == routes.tree.leaves()


def test_boxes_lie_on_the_grid(model: ParseCaps) -> None:
    routes = trace_routes(model, torch.rand(1, 1, 32, 32))
    for leaf in routes.tree.leaves():
        top, left, bottom, right = leaf.box
        assert (bottom - top, right - left) == (2, 2)
        assert leaf.capsule == top // 2 * 16 + left // 2


@pytest.mark.parametrize("head", ["parallel", "bottleneck"])
def test_sparsity_of_every_cell(head: str) -> None:
    model = ParseCaps.from_preset("tiny", num_classes=3, head=head)
    rows = trace_routes(model, torch.rand(1, 1, 32, 32)).sparsity
    assert [row.cell for row in rows if row.branch == "sparse"] == [
        "block 1 cell 1",
        "block 2 cell 1",
        "block 3 cell 1",
        "block 3 cell 2",
    ]
    for row in rows:
        assert 0 <= row.zero_in_reach <= row.zero < 1
