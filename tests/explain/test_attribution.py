"""The registry of map methods, the relevance of routes, and a routing from outside that gets all of it."""

import pytest
import torch
from torch import nn

from parsecaps.explain import MAP_METHODS, Target, attribution_maps, has_routes, parse_tree, route_relevance
from parsecaps.explain.attribution_path import AttributionPath, trace
from parsecaps.models import FlatCaps, ParseCaps, PlainCNN
from parsecaps.nn import ROUTINGS, record_couplings
from tests.explain.small_models import random_image, small_model
from tests.explain.toy_routing import OwnChildren

TARGETS = [Target("classes", 1), Target("concepts", 2), Target("concepts", 0)]


@pytest.mark.parametrize("kind", [ParseCaps, FlatCaps, PlainCNN])
def test_every_method_explains_every_model_it_can(kind: type[ParseCaps]) -> None:
    assert list(MAP_METHODS) == ["routes", "grad-cam", "integrated-gradients", "occlusion"]
    torch.manual_seed(0)
    model, image = kind.from_preset("tiny", num_classes=2).eval(), torch.rand(2, 1, 32, 32)
    assert has_routes(model) == (kind is not PlainCNN)
    for method in MAP_METHODS:
        if method == "routes" and not has_routes(model):
            with pytest.raises(ValueError, match="PlainCNN has no routes to follow; choose a gradient map"):
                attribution_maps(model, image, TARGETS)
            continue
        maps = attribution_maps(model, image, TARGETS, method)
        assert maps.shape == (2, 3, 32, 32)
        assert maps.min() >= 0
        torch.testing.assert_close(maps[:, 1:2], attribution_maps(model, image, TARGETS[1:2], method))


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method is 'lrp'; choose one of routes, grad-cam, integrated-grad"):
        attribution_maps(nn.Identity(), torch.rand(1, 1, 32, 32), TARGETS, "lrp")


@pytest.mark.parametrize("routing", ["saa", "dynamic"])
def test_every_route_has_a_relevance_and_only_routes_do(routing: str) -> None:
    torch.manual_seed(0)
    model, image = ParseCaps.from_preset("tiny", num_classes=2, routing=routing).eval(), torch.rand(2, 1, 32, 32)
    relevance = route_relevance(model, image, TARGETS)
    with record_couplings(model) as recorded:
        model(image)
    couplings = [each.coupling for each in recorded if each.between == "capsules"]
    assert len(relevance) == len(TARGETS)
    for each in relevance:
        assert [found.shape for found in each] == [coupling.shape for coupling in couplings]
    torch.testing.assert_close(relevance[1], route_relevance(model, image, TARGETS[1:2])[0])


class TestARoutingFromOutside:
    """It implements the protocol and is registered; nothing else of the package knows it."""

    @pytest.fixture
    def model(self, monkeypatch: pytest.MonkeyPatch) -> ParseCaps:
        monkeypatch.setitem(ROUTINGS, "own", OwnChildren)
        return small_model(1, routing="own", head="bottleneck")

    def test_it_has_maps(self, model: ParseCaps) -> None:
        image = random_image(model)
        maps = attribution_maps(model, image, TARGETS)
        path = AttributionPath(trace(model, image))
        for i, target in enumerate(TARGETS):
            wanted = path.leaf_attribution(target).relevance.clamp_min(0).sum(-1)
            torch.testing.assert_close(maps[:, i].sum((1, 2)), wanted)

    def test_its_routes_add_up(self, model: ParseCaps) -> None:
        path = AttributionPath(trace(model, random_image(model)), panels=32)
        leaves = path.leaf_attribution(TARGETS[1])
        for cell, by_way in zip(path.cells, path.route_relevance(TARGETS[1]), strict=True):
            sums = [way.messages.dense(kept).sum((1, 2, 3)) for way, kept in zip(cell.ways, by_way, strict=True)]
            torch.testing.assert_close(sum(sums), leaves.after - leaves.before, rtol=0.02, atol=1e-4)
        shapes = [tuple(each.shape) for each in route_relevance(model, random_image(model), TARGETS)[0]]
        assert shapes == [(2, 1, 25, 100), (2, 1, 9, 25), (2, 1, 4, 9), (2, 1, 4, 4)]

    def test_it_has_trees(self, model: ParseCaps) -> None:
        trees = [parse_tree(model, random_image(model, 1), about=t.about, index=t.index, min_share=0) for t in TARGETS]
        assert any(tree.nodes for tree in trees)
        for tree in trees:
            assert tree.strict  # each child has one parent in this routing
            seen = [(node.level, capsule) for node in tree.nodes for capsule in node.capsules]
            assert len(seen) == len(set(seen))

    def test_a_setting_that_it_does_not_read_is_refused(self, model: ParseCaps) -> None:
        with pytest.raises(ValueError, match="the routing 'own' has no setting 'alpha'; leave it out"):
            small_model(routing="own", alpha=1.3)
