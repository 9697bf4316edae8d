"""Maps along the one layer of routes of CapsNet, and what is said of a model that has no tree."""

import pytest
import torch
from torch import Tensor

from parsecaps.data.preparation import Preparation
from parsecaps.explain import MAP_METHODS, Target, attribution_maps, has_routes, route_relevance, trace
from parsecaps.explain.attribution_path import trace_layer
from parsecaps.explain.route_maps import layer_maps
from parsecaps.model import Model
from parsecaps.nn.capsules import CapsuleGrid
from parsecaps.nn.recorder import record_ways
from parsecaps.rivals import CapsNet
from tests.messages import message, refused

IMAGE = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(0))
TARGETS = [Target("classes", 1), Target("classes", 0)]


def build(**settings: object) -> CapsNet:
    torch.manual_seed(0)
    return CapsNet.from_preset("tiny", num_classes=3, **settings).eval()


@pytest.mark.parametrize("routing", ["dynamic", "none"])
def test_children_are_credited_with_the_length_of_the_class(routing: str) -> None:
    """The score is |s|^2 / (1 + |s|^2); its gradient along s, times s, is what all children bring together."""
    model = build(routing=routing)
    with record_ways(model) as ways:
        model(IMAGE)
    square = ways[-1].total.square().sum(-1)
    expected = 2 * square / (1 + square).square()
    for target, (brought,) in zip(TARGETS, route_relevance(model, IMAGE, TARGETS), strict=True):
        assert brought.shape == (2, 1, 3, 4 * 8 * 8)
        torch.testing.assert_close(brought.sum((1, 2, 3)), expected[:, target.index], rtol=1e-4, atol=1e-7)
        others = [k for k in range(3) if k != target.index]
        assert brought[:, :, others].abs().max() == 0


@pytest.mark.parametrize("routing", ["dynamic", "none"])
def test_every_method_explains_it(routing: str) -> None:
    model = build(routing=routing)
    assert has_routes(model)
    for method in MAP_METHODS:
        maps = attribution_maps(model, IMAGE, TARGETS, method)
        assert maps.shape == (2, 2, 32, 32)
        assert maps.min() >= 0
        assert maps.max() > 0
        torch.testing.assert_close(maps[:, 1:], attribution_maps(model, IMAGE, TARGETS[1:], method))
        torch.testing.assert_close(maps[1:], attribution_maps(model, IMAGE[1:], TARGETS, method), rtol=1e-3, atol=1e-5)


def map_of(brought: Tensor, *grids: CapsuleGrid) -> Tensor:
    """The map of one image and target, to which children brought (1, heads, K, n)."""
    layer = trace_layer(build(), IMAGE[:1])
    object.__setattr__(layer, "grids", grids)
    object.__setattr__(layer, "contributions", lambda values: brought)
    return layer_maps(layer, TARGETS[:1], 32)[0, 0]


def test_a_map_lies_where_the_children_look() -> None:
    """Of one child alone the map is a hill of its size, with its top at the centre of what that child sees."""
    model = build()
    grid = model.class_children[0]
    place, kind = 2 * 8 + 5, 3
    brought = torch.zeros(1, 1, 3, grid.capsules)
    brought[0, 0, 1, place * grid.types + kind] = 2.0
    found = map_of(brought, grid)
    assert found.sum().item() == pytest.approx(2.0)
    line = torch.arange(32) + 0.5
    assert float((found.sum(1) * line).sum() / 2) == pytest.approx(grid.first + 2 * grid.step)
    assert float((found.sum(0) * line).sum() / 2) == pytest.approx(grid.first + 5 * grid.step)
    seen = torch.zeros(1, 1, 32, 32, requires_grad=True)  # and the child itself says where that is
    model.primary(model.stem[0](seen))[0, place * grid.types + kind].sum().backward()
    rows = seen.grad[0, 0].abs().sum(1).nonzero().float() + 0.5
    assert float(rows.mean()) == pytest.approx(grid.first + 2 * grid.step)


def test_children_on_several_grids_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build()
    parts = (CapsuleGrid(8, 2, 8.5, 2), CapsuleGrid(4, 8, 10.5, 4))
    assert sum(each.capsules for each in parts) == model.primary.capsules
    whole = torch.rand(1, 1, 3, 256)
    assert map_of(whole, *parts).sum().item() == pytest.approx(whole.sum().item(), rel=1e-5)
    monkeypatch.setattr(CapsNet, "class_children", parts[:1])
    with refused(ValueError):
        model.routes(IMAGE[:1])


def test_it_has_no_tree_and_says_so() -> None:
    model = build()
    with refused(ValueError):
        trace(model, IMAGE)
    with refused(ValueError):
        attribution_maps(model, IMAGE, [Target("concepts", 0)])


def test_an_explanation_follows_the_routes_without_a_tree() -> None:
    torch.manual_seed(0)
    network = CapsNet.from_preset("tiny", num_classes=2, in_channels=3).eval()
    model = Model(network, Preparation(size=32, channels=3), ("benign", "malignant"), ())
    image = torch.rand(3, 32, 32)
    told = model.explain(image, strict=True)
    best = list(told.probabilities).index(told.diagnosis)
    assert told.method == "routes"
    assert told.trees == told.concepts == ()
    expected = attribution_maps(model.network, image[None], [Target("classes", best)])[0, 0]
    torch.testing.assert_close(torch.from_numpy(told.class_map), expected)
    message(*told.notes)
    assert "gradients" not in " ".join(told.notes)
