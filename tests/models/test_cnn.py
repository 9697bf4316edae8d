"""The plain CNN keeps the same contract as ParseCaps, without capsules."""

import pytest
import torch

from parsecaps.models import ParseCaps, PlainCNN, TrunkCNN
from parsecaps.nn import TRUNKS, record_couplings
from parsecaps.rivals import CBM, CCNN, CEM
from tests.messages import refused
from tests.models.contract import CompileContract, ExportContract, ModelContract


class TestPlainCNN(CompileContract, ExportContract):
    wrong = (
        {"in_channels": -1},
        {"stem_channels": (8, 8)},
        {"channels": ()},
        {"head": "bottleneck"},
        {"head": "serial"},
    )

    def build(self) -> PlainCNN:
        return PlainCNN(num_classes=3, image_size=32, grid_width=16, stem_channels=(8, 8, 8, 8), channels=(8, 12, 16))


class TestOddColour(ModelContract):
    def build(self) -> PlainCNN:
        return PlainCNN(
            num_classes=2,
            in_channels=3,
            image_size=45,
            grid_width=16,
            stem_channels=(4, 4, 8, 8),
            channels=(8, 8),
        )


class TestConcepts(ModelContract):
    def build(self) -> PlainCNN:
        return PlainCNN.from_preset("tiny", num_classes=3)


class TestBottleneck(ModelContract):
    def build(self) -> PlainCNN:
        return PlainCNN.from_preset("tiny", num_classes=3, head="bottleneck")

    def test_the_presences_alone_decide(self) -> None:
        model = self.build().eval()
        output = model(self.images(model))
        expected = output.presence @ model.classes.weight.T + model.classes.bias
        torch.testing.assert_close(output.logits, expected)


class TestTrunkCNN(ExportContract):
    wrong = ({"trunk": "lite9"}, {"image_size": 28})

    def build(self) -> TrunkCNN:
        return TrunkCNN.from_preset("tiny", num_classes=3, trunk="PlainCNN")


@pytest.mark.parametrize("kind", [TrunkCNN, CBM, CEM, CCNN])
def test_a_trunk_beneath_any_head_starts_from_its_weights(kind: type[TrunkCNN] | type[CBM]) -> None:
    backbone = {} if kind is TrunkCNN else {"backbone": "TrunkCNN", "backbone_preset": "medical"}
    model = kind.from_preset("medical", num_classes=2, num_concepts=3, in_channels=3, image_size=64, **backbone)
    model.start(torch.tensor([0, 1, 1]), torch.eye(3))
    trunk = (model if kind is TrunkCNN else model.backbone).layers
    weights = TRUNKS["lite0"].weights
    assert weights is not None
    stored = weights.read()
    for name, tensor in trunk.layers.state_dict().items():
        if name in stored:
            torch.testing.assert_close(tensor, stored[name])
    assert trunk.learning_rate_factor == 0.3
    model(torch.rand(2, 3, 64, 64)).logits.sum().backward()


def test_it_shares_the_grid_of_parsecaps() -> None:
    cnn, caps = PlainCNN(num_classes=3), ParseCaps.from_preset("medical", num_classes=3)
    assert cnn.initial.width == caps.initial.width
    features = cnn.layers(torch.zeros(1, cnn.initial.layers[-2].num_features, *[cnn.initial.width] * 2))
    assert list(features.shape[2:]) == [caps.widths[-1]] * 2


def test_it_has_no_decoder_and_no_couplings() -> None:
    model = PlainCNN(num_classes=3, image_size=28).eval()
    with refused(ValueError):
        model(torch.rand(1, 1, 28, 28), reconstruct=True)
    with refused(ValueError), record_couplings(model):
        pass
