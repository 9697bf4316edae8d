"""ResNet-18 keeps the contract of every model, for small images and for large ones."""

import pytest
import torch

from parsecaps.explain.attribution import Target, grad_cam
from parsecaps.nn import record_couplings
from parsecaps.rivals import ResNet18, ResNet34
from tests.models.contract import ExportContract, ModelContract


class TestResNet18(ExportContract):
    def build(self) -> ResNet18:
        return ResNet18.from_preset("tiny", num_classes=3)


class TestResNet34(ModelContract):
    def build(self) -> ResNet34:
        return ResNet34.from_preset("tiny", num_classes=2)


class TestBottleneckInColour(ModelContract):
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


@pytest.mark.parametrize(("size", "top"), [(28, 4), (64, 8), (96, 3), (224, 7)])
def test_small_images_are_halved_less_often(size: int, top: int) -> None:
    model = ResNet18(num_classes=3, image_size=size).eval()
    seen = []
    model.layers[-1].register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape[2:])))
    model(torch.rand(1, 1, size, size))
    assert seen == [(top, top)]


def test_it_has_no_decoder_and_no_couplings_but_maps() -> None:
    model = ResNet18.from_preset("tiny", num_classes=3).eval()
    image = torch.rand(2, 1, 32, 32)
    with pytest.raises(ValueError, match=r"ResNet18 has no decoder; call it without reconstruct"):
        model(image, reconstruct=True)
    with pytest.raises(ValueError, match=r"ResNet18 has no couplings; give"), record_couplings(model):
        pass
    assert grad_cam(model, image, [Target("classes", 1)]).shape == (2, 1, 32, 32)
