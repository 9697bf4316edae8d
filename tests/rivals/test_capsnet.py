"""CapsNet, its form for brain tumours and Aff-CapsNet, against the counts of the published ones."""

from typing import Any

import pytest
import torch

from parsecaps import load_config
from parsecaps.rivals import CapsNet
from tests.models.contract import CompileContract, ExportContract, ModelContract


class TestCapsNet(CompileContract, ExportContract):
    wrong = ({"routing": "static"}, {"iterations": 0})

    def build(self) -> CapsNet:
        return CapsNet.from_preset("tiny", num_classes=3)


class TestColourWithoutDecoder(ModelContract):
    def build(self) -> CapsNet:
        return CapsNet.from_preset("tiny", num_classes=4, in_channels=3, image_size=35, decoder=False, iterations=1)


class TestAffine(ModelContract):
    def build(self) -> CapsNet:
        return CapsNet.from_preset("tiny", num_classes=2, routing="none")


@pytest.mark.parametrize(
    ("preset", "changes", "encoder", "decoder"),
    [
        ("digits", {"num_classes": 10}, 6_804_224, 1_411_344),
        ("digits", {"num_classes": 10, "image_size": 40}, 11_227_904, 2_247_744),
        ("digits", {"num_classes": 3, "image_size": 64}, 12_407_552, 4_748_800),
        ("medical", {"num_classes": 3}, 8_410_496, 4_748_800),
        ("affine", {"num_classes": 10}, 5_330_944, 2_247_744),
    ],
)
def test_the_published_number_of_weights(preset: str, changes: dict[str, Any], encoder: int, decoder: int) -> None:
    model = CapsNet.from_preset(preset, **changes)
    drawing = sum(weight.numel() for weight in model.decoder.parameters())
    assert drawing == decoder
    assert sum(weight.numel() for weight in model.parameters()) - drawing == encoder


def test_a_capsule_is_neighbouring_channels_at_one_position() -> None:
    model = CapsNet.from_preset("tiny", num_classes=3).eval()
    seen = torch.rand(2, 16, 24, 24)
    capsules, maps = model.primary(seen), model.primary.convolution(seen)  # 4 types of 4 channels, 8 x 8
    direction = capsules / capsules.norm(dim=-1, keepdim=True)
    for y, x, kind in ((0, 0, 0), (2, 5, 3), (7, 7, 1)):
        expected = maps[:, 4 * kind : 4 * kind + 4, y, x]
        expected = expected / expected.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(direction[:, (y * 8 + x) * 4 + kind], expected)


def test_the_score_is_the_length_and_the_longest_is_drawn() -> None:
    model = CapsNet.from_preset("tiny", num_classes=3).eval()
    output = model(torch.rand(4, 1, 32, 32), reconstruct=True)
    torch.testing.assert_close(output.logits, output.class_capsules.norm(dim=-1))
    drawn = model.decode(output.class_capsules, output.logits.argmax(1))
    torch.testing.assert_close(output.reconstruction, drawn)
    others = model.decode(output.class_capsules, (output.logits.argmax(1) + 1) % 3)
    assert not torch.allclose(others, drawn)


@pytest.mark.parametrize(
    ("name", "classes", "encoder"),
    [("capsnet", 10, 6_804_224), ("capsnet-brain", 3, 8_410_496), ("aff-capsnet", 10, 5_330_944)],
)
def test_the_recipes_are_of_the_published_networks(name: str, classes: int, encoder: int) -> None:
    config = load_config(name)
    section = config.model
    assert section.kind == "CapsNet"
    model = CapsNet.from_preset(
        section.preset, num_classes=classes, image_size=section.image_size, decoder=False, **section.settings
    )
    assert sum(weight.numel() for weight in model.parameters()) == encoder
    assert (config.training.optimizer, config.training.schedule) == ("adam", "steps")


@pytest.mark.parametrize(("preset", "classes"), [("digits", 10), ("medical", 3)])
def test_no_class_is_long_at_the_start(preset: str, classes: int) -> None:
    """A capsule near length 1 has no gradient: with many children and few classes, none would ever learn."""
    torch.manual_seed(0)
    model = CapsNet.from_preset(preset, num_classes=classes, decoder=False).eval()
    with torch.no_grad():
        scores = model(torch.rand(2, 1, model.image_size, model.image_size)).logits
    assert scores.max() < 0.9
