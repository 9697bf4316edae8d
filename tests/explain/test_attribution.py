"""The registry of map methods, the relevance of routes, and a routing from outside that gets all of it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from captum.attr import IntegratedGradients, LayerGradCam, Occlusion
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.explain import MAP_METHODS, Target, attribution_maps, has_routes, parse_tree, route_relevance
from parsecaps.explain.attribution import IG_STEPS, grad_cam, integrated_gradients, occlusion
from parsecaps.explain.attribution_path import AttributionPath, neutral_image, trace
from parsecaps.models import FlatCaps, ParseCaps, PlainCNN
from parsecaps.nn import ROUTINGS, record_couplings
from parsecaps.types import Output
from tests.explain.small_models import random_image, small_model
from tests.explain.toy_routing import OwnChildren
from tests.messages import refused

TARGETS = [Target("classes", 1), Target("concepts", 2), Target("concepts", 0)]


@pytest.mark.parametrize("kind", [ParseCaps, FlatCaps, PlainCNN])
def test_every_method_explains_every_model_it_can(kind: type[ParseCaps]) -> None:
    assert list(MAP_METHODS) == ["routes", "grad-cam", "integrated-gradients", "occlusion"]
    torch.manual_seed(0)
    model, image = kind.from_preset("tiny", num_classes=2).eval(), torch.rand(2, 1, 32, 32)
    assert has_routes(model) == (kind is not PlainCNN)
    for method in MAP_METHODS:
        if method == "routes" and not has_routes(model):
            with refused(ValueError):
                attribution_maps(model, image, TARGETS)
            continue
        maps = attribution_maps(model, image, TARGETS, method)
        assert maps.shape == (2, 3, 32, 32)
        assert maps.min() >= 0
        torch.testing.assert_close(maps[:, 1:2], attribution_maps(model, image, TARGETS[1:2], method))


def test_an_unknown_method_is_refused() -> None:
    with refused(ValueError):
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
        with refused(ValueError):
            small_model(routing="own", alpha=1.3)


class Sums(nn.Module):
    """Two concepts: the left half of the image, and the right half doubled and negative."""

    def forward(self, image: Tensor) -> Output:
        left, right = (half.sum((1, 2, 3)) for half in image.chunk(2, -1))
        presence = torch.stack([left, -2 * right], 1)
        return Output(presence, presence=presence)


IMAGE = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))


CONCEPTS = [Target("concepts", 0), Target("concepts", 1)]
METHODS: dict[str, Callable[[nn.Module, Tensor, Sequence[Target]], Tensor]] = {
    "grad-cam": grad_cam,
    "integrated gradients": integrated_gradients,
    "occlusion": occlusion,
}


@pytest.mark.parametrize("name", METHODS)
def test_shapes_signs_rows_and_targets(name: str) -> None:
    model = small_model()
    image = random_image(model)
    targets = [Target("concepts", 2), Target("classes", 1), Target("concepts", 0)]
    maps = METHODS[name](model, image, targets)
    assert maps.shape == (2, 3, 40, 40)
    assert maps.min() >= 0
    assert not maps.requires_grad
    torch.testing.assert_close(maps[1:], METHODS[name](model, image[1:], targets))
    torch.testing.assert_close(maps[:, 1:2], METHODS[name](model, image, targets[1:2]))
    with torch.no_grad():
        torch.testing.assert_close(maps, METHODS[name](model, image, targets))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["ParseCaps", "PlainCNN"])
def test_maps_are_those_of_captum(name: str, kind: str) -> None:
    torch.manual_seed(0)
    model: Any = small_model(in_channels=3, image_size=43) if kind == "ParseCaps" else None
    if model is None:  # the feature map is followed by a ReLU that works in place
        model = PlainCNN(num_classes=2, num_concepts=2, in_channels=3, image_size=43).double().eval()
        layer = next(each for each in reversed(list(model.modules())) if isinstance(each, nn.BatchNorm2d))
    else:
        layer = model.primary.norm
    image = torch.rand(2, 3, 43, 43, dtype=torch.float64)

    def presence(image: Tensor) -> Tensor:
        found: Tensor = model(image).presence
        return found

    wanted = []
    for j in range(2):
        if name == "integrated gradients":
            method = IntegratedGradients(presence)
            wanted.append(method.attribute(image, neutral_image(image), target=j, n_steps=IG_STEPS).sum(1))
        elif name == "grad-cam":
            small = LayerGradCam(presence, layer).attribute(image, target=j)
            wanted.append(F.interpolate(small, (43, 43), mode="bilinear", align_corners=False)[:, 0])
        else:
            method = Occlusion(presence)
            wanted.append(
                method.attribute(image, (3, 12, 12), (3, 6, 6), baselines=neutral_image(image), target=j)[:, 0]
            )
    found = METHODS[name](model, image, CONCEPTS)
    rounding = 1e-5 * float(found.max()) if name == "occlusion" else 1e-12  # captum adds up windows in single precision
    expected = torch.stack(wanted, 1).detach().clamp_min(0).double()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=rounding)
    assert found.max() > 0


def test_integrated_gradients_of_a_linear_model() -> None:
    found = integrated_gradients(Sums(), IMAGE, CONCEPTS)
    difference = (IMAGE - neutral_image(IMAGE)).sum(1)
    expected = torch.zeros(2, 2, 16, 16)
    expected[:, 0, :, :8], expected[:, 1, :, 8:] = difference[..., :8], -2 * difference[..., 8:]
    torch.testing.assert_close(found, expected.clamp_min(0), atol=1e-5, rtol=1e-5)


def test_occlusion_of_a_linear_model() -> None:
    found = occlusion(Sums(), IMAGE, CONCEPTS)
    difference = (IMAGE - neutral_image(IMAGE)).sum(1)
    corner = difference[:, :4, :4].sum((1, 2))  # only one window covers the pixel in the corner
    torch.testing.assert_close(found[:, 0, 0, 0], corner.clamp_min(0), atol=1e-4, rtol=1e-4)


def test_grad_cam_by_its_formula() -> None:
    model = small_model()
    image = random_image(model)
    kept: list[Tensor] = []
    handle = model.primary.norm.register_forward_hook(lambda module, given, result: kept.append(result))
    presence = model(image).presence
    handle.remove()
    assert presence is not None
    gradient = torch.autograd.grad(presence[:, 1].sum(), kept[0])[0]
    by_hand = (gradient.mean((2, 3), keepdim=True) * kept[0]).sum(1, keepdim=True)
    by_hand = F.interpolate(by_hand, (40, 40), mode="bilinear", align_corners=False)[:, 0]
    torch.testing.assert_close(grad_cam(model, image, CONCEPTS)[:, 1], by_hand.clamp_min(0).detach())


def test_any_model_has_gradient_maps_of_its_classes() -> None:
    torch.manual_seed(0)
    model = PlainCNN(num_classes=3, image_size=32).eval()
    for method in METHODS.values():
        assert method(model, torch.rand(1, 1, 32, 32), [Target("classes", k) for k in range(3)]).shape == (1, 3, 32, 32)
        with refused(ValueError):
            method(model, torch.rand(1, 1, 32, 32), CONCEPTS)


def test_weights_that_do_not_learn_change_nothing() -> None:
    """A network that is frozen, as by a user who only predicts."""
    model = small_model()
    image = random_image(model)
    wanted = [method(model, image, CONCEPTS) for method in METHODS.values()]
    model.requires_grad_(False)
    for method, maps in zip(METHODS.values(), wanted, strict=True):
        torch.testing.assert_close(method(model, image, CONCEPTS), maps)


def test_grad_cam_needs_a_feature_map() -> None:
    with refused(ValueError):
        grad_cam(Sums(), IMAGE, CONCEPTS)
