"""The CNNs to compare with keep the contract of every model, and are those of the papers, weight by weight."""

from typing import Any

import pytest
import torch
from torch import Tensor

from parsecaps.explain.attribution import Target, grad_cam
from parsecaps.models.cnn import FeatureModel
from parsecaps.nn import record_couplings
from parsecaps.rivals import (
    VGG16,
    VGG19,
    DenseNet121,
    EfficientNetB0,
    EfficientNetLite0,
    GoogLeNet,
    ResNet18,
    ResNet34,
    SqueezeNet,
)
from tests.messages import refused
from tests.models.contract import ExportContract, ModelContract, warmed_up

KINDS: list[type[FeatureModel]] = [
    ResNet18,
    EfficientNetLite0,
    DenseNet121,
    EfficientNetB0,
    GoogLeNet,
    VGG19,
    SqueezeNet,
]


class TestDenseNet121(ExportContract):
    wrong = ({"growth_rate": 0},)

    def build(self) -> DenseNet121:
        return DenseNet121.from_preset("tiny", num_classes=3)


class TestEfficientNetB0(ExportContract):
    wrong = ({"drop_connect": 1.0},)
    cancelled = ("_bn2.bias",)

    def build(self) -> EfficientNetB0:
        return EfficientNetB0.from_preset("tiny", num_classes=3, drop_connect=0.0)

    def test_a_row_is_the_same_alone_or_in_a_batch(self) -> None:
        # in float64: for images unlike those that the normalisations have seen, rounding grows a thousandfold
        model = warmed_up(self.build()).double()
        image = self.images(model, 4).double() * torch.tensor([0.01, 1, 3, 1]).view(4, 1, 1, 1)
        together, alone = model(image).logits, torch.cat([model(each).logits for each in image.split(1)])
        torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-9)


class TestGoogLeNet(ExportContract):
    wrong = ({"width": 0.0}, {"width": float("nan")})

    def build(self) -> GoogLeNet:
        return GoogLeNet.from_preset("tiny", num_classes=3)


class TestOriginalGoogLeNet(ModelContract):
    def build(self) -> GoogLeNet:
        return GoogLeNet.from_preset("tiny", num_classes=3, batch_norm=False)


class TestVGG19(ExportContract):
    def build(self) -> VGG19:
        return VGG19.from_preset("tiny", num_classes=3)


class TestSqueezeNet(ExportContract):
    def build(self) -> SqueezeNet:
        return SqueezeNet.from_preset("tiny", num_classes=3)


class TestLargerBottleneckInColour(ModelContract):
    def build(self) -> SqueezeNet:
        return SqueezeNet.from_preset("tiny", num_classes=2, in_channels=3, image_size=75, head="bottleneck")


@pytest.mark.parametrize(
    ("kind", "settings", "count"),
    [
        (DenseNet121, {"num_classes": 1000}, 7_978_856),
        (EfficientNetB0, {"num_classes": 1000}, 5_288_548),
        (GoogLeNet, {"num_classes": 3}, 5_602_979),
        (GoogLeNet, {"num_classes": 3, "batch_norm": False}, 5_976_627),
        (VGG16, {"num_classes": 1000}, 138_357_544),
        (VGG19, {"num_classes": 3}, 139_582_531),
        (SqueezeNet, {"num_classes": 2}, 736_450),
    ],
)
def test_it_has_as_many_parameters_as_published(kind: type[FeatureModel], settings: dict[str, Any], count: int) -> None:
    with torch.device("meta"):
        model = kind(in_channels=3, image_size=224, **settings)
    assert sum(p.numel() for p in model.parameters()) == count
    assert "rom scratch, without ImageNet weights" in (kind.__doc__ or "")


def top(kind: type[FeatureModel], size: int) -> tuple[int, ...]:
    """The shape of the map that is averaged, without the work for it."""
    seen: list[tuple[int, ...]] = []
    with torch.device("meta"):
        model = kind.from_preset("tiny", num_classes=3, image_size=size).eval()
        layer = model.top if isinstance(model, EfficientNetB0 | EfficientNetLite0) else model.layers
        layer.register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape[2:])))
        logits = model.classify(torch.zeros(1, 1, size, size), False).logits
    assert logits.shape == (1, 3)
    return seen[0]


@pytest.mark.parametrize(
    ("kind", "tops"),
    [  # of images of 28, 64, 65, 99 and 224 pixels
        (ResNet18, (4, 8, 3, 4, 7)),
        (EfficientNetLite0, (2, 4, 3, 4, 7)),
        (DenseNet121, (3, 8, 2, 3, 7)),
        (EfficientNetB0, (2, 4, 3, 4, 7)),
        (GoogLeNet, (3, 8, 2, 3, 7)),
        (VGG19, (3, 8, 2, 3, 7)),
        (SqueezeNet, (3, 8, 3, 5, 13)),
    ],
)
def test_any_size_will_do_and_small_images_are_halved_less_often(
    kind: type[FeatureModel], tops: tuple[int, ...]
) -> None:
    assert [top(kind, size) for size in (28, 64, 65, 99, 224)] == [(each, each) for each in tops]


@pytest.mark.parametrize("kind", KINDS)
def test_what_comes_before_the_heads_has_the_number_of_features_that_it_says(kind: type[FeatureModel]) -> None:
    model = kind.from_preset("tiny", num_classes=3).without_heads().eval()
    assert model.features(torch.rand(2, 1, 32, 32)).shape == (2, model.num_features)


@pytest.mark.parametrize("kind", [EfficientNetB0, EfficientNetLite0, GoogLeNet, VGG19, SqueezeNet])
def test_dropout_is_for_training_alone(kind: type[FeatureModel]) -> None:
    model, image = kind.from_preset("tiny", num_classes=3, dropout=0.5), torch.rand(4, 1, 32, 32)
    model.eval()
    assert torch.equal(model.features(image), model.features(image))
    model.train()
    assert not torch.equal(model.features(image), model.features(image))


def test_drop_connect_leaves_out_blocks_of_some_images_in_training_alone() -> None:
    model = EfficientNetB0.from_preset("tiny", num_classes=3, dropout=0.0, drop_connect=0.9)
    for norm in model.modules():  # which would make rows depend on each other
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.eval()
    image = torch.rand(1, 1, 32, 32)
    rows = model.features(model.standardise(image.expand(16, -1, -1, -1)))
    assert len({tuple(row.tolist()) for row in rows}) > 1
    model.eval()
    assert torch.equal(model.features(image), model.features(image))


@pytest.mark.parametrize("kind", KINDS)
def test_it_has_no_couplings(kind: type[FeatureModel]) -> None:
    model = kind.from_preset("tiny", num_classes=3)
    with refused(ValueError), record_couplings(model):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_grad_cam_looks_at_the_whole_last_map(kind: type[FeatureModel]) -> None:
    model = kind.from_preset("tiny", num_classes=3).eval()
    image = torch.rand(2, 1, 32, 32)
    assert grad_cam(model, image, [Target("classes", 1)]).shape == (2, 1, 32, 32)
    if model.feature_map is None:
        return
    kept: list[Tensor] = []
    handle = model.feature_map.register_forward_hook(lambda module, given, out: kept.append(out.retain_grad() or out))
    model(image).logits[:, 1].sum().backward()
    handle.remove()
    (features,) = kept
    assert features.shape[1] == (model.num_features if kind is not VGG19 else 64)
    small = (features.grad.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True)  # type: ignore[union-attr]
    expected = torch.nn.functional.interpolate(small, (32, 32), mode="bilinear").clamp_min(0).detach()
    torch.testing.assert_close(grad_cam(model, image, [Target("classes", 1)]), expected)


class TestResNet18(ExportContract):
    def build(self) -> ResNet18:
        return ResNet18.from_preset("tiny", num_classes=3)


class TestResNetBottleneckInColour(ModelContract):
    def build(self) -> ResNet18:
        return ResNet18.from_preset("tiny", num_classes=2, in_channels=3, image_size=45, head="bottleneck")


def test_it_is_the_network_of_eighteen_layers() -> None:
    model = ResNet18(num_classes=3)
    assert (
        sum(p.numel() for p in model.parameters()) == 11_171_779
    )  # counted by hand: 2 x 2 blocks of 3 x 3, 7 x 7 first
    assert [m.weight.shape[0] for m in model.modules() if isinstance(m, torch.nn.Linear)] == [3]


def test_its_features_alone_are_a_part_for_other_models() -> None:
    model = ResNet34(num_classes=2, in_channels=3).without_heads()
    numbers = sum(p.numel() for p in model.parameters())
    assert numbers + 7 * model.num_features + 7 + 2 * 7 + 2 == 21_288_279  # a bottleneck of 7 concepts, 2 classes
    assert not [name for name, _ in model.named_buffers() if not name.startswith("layers.")]
    model.eval()
    image = torch.rand(2, 3, 224, 224)
    assert model.features(image).shape == (2, 512)
