"""AR CapsNet keeps the contract, has the published number of weights, and gates types of children."""

import pytest
import torch

from parsecaps.nn import record_couplings
from parsecaps.rivals import ARCapsNet
from parsecaps.rivals.ar_capsnet import AttentionClassCaps, AttentionConvCaps
from tests.models.contract import ExportContract, ModelContract

_CANCELLED = ("stem.0.bias", "stem.3.bias")  # by the batch normalisation behind them


class TestARCapsNet(ExportContract):
    wrong = ({"layers": 4},)
    cancelled = _CANCELLED

    def build(self) -> ARCapsNet:
        return ARCapsNet.from_preset("tiny", num_classes=3)


class TestColourWithoutLayers(ModelContract):
    cancelled = _CANCELLED

    def build(self) -> ARCapsNet:
        return ARCapsNet.from_preset("tiny", num_classes=2, in_channels=3, image_size=35, layers=0, decoder=False)


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"num_classes": 10, "layers": 0, "dim": 16}, 4_889_456),
        ({"num_classes": 10, "layers": 1, "dim": 32}, 5_312_528),
        ({"num_classes": 10, "layers": 1, "dim": 16, "image_size": 40}, 3_500_832),
        ({"num_classes": 3, "layers": 1, "dim": 16, "image_size": 64}, 1_849_840 + 2_388_992),
        ({"num_classes": 3, "layers": 1, "dim": 16, "image_size": 64, "decoder": False}, 1_849_840),
    ],
)
def test_the_published_number_of_weights(settings: dict[str, int], count: int) -> None:
    assert sum(weight.numel() for weight in ARCapsNet(**settings).parameters()) == count


def test_class_capsules_one_pair_after_the_other() -> None:
    layer = AttentionClassCaps(width=3, types=2, in_dim=4, classes=3, dim=5).eval()
    torch.nn.init.normal_(layer.bias)
    u = torch.randn(1, 18, 4)
    grid = u.view(3, 3, 2, 4)
    kernel = layer.weight.view(2, 3, 3, 4, 3, 5)
    for k in range(3):
        votes = torch.stack(
            [
                sum(grid[y, x, t] @ kernel[t, y, x, :, k] for y in range(3) for x in range(3)) + layer.bias[t, k]
                for t in range(2)
            ]
        )
        c = (votes.flatten() @ layer.gate.attention[k]).softmax(0)
        expected = torch.tanh((c @ votes) @ layer.gate.weight[k] + layer.gate.bias[k])
        torch.testing.assert_close(layer(u)[0, k], expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_convolutional_capsules_at_one_place(stride: int) -> None:
    layer = AttentionConvCaps(width=6, types=2, in_dim=3, dim=3, stride=stride).eval()
    u = torch.randn(1, 72, 3)
    out = layer(u).view(layer.width, layer.width, 2, 3)
    grid = u.view(6, 6, 2, 3)
    weight = layer.votes.weight.view(2, 2, 3, 3, 3, 3)  # child, parent, dim, in_dim, y, x
    y = x = 1  # away from the border, where nothing is padded
    for k in range(2):
        votes = layer.votes.bias.view(2, 2, 3)[:, k].clone()
        for t in range(2):
            for i in range(3):
                for j in range(3):
                    child = grid[y * stride + i - 1, x * stride + j - 1, t]
                    votes[t] += weight[t, k, :, :, i, j] @ child
        c = (votes.flatten() @ layer.gate.attention[k]).softmax(0)
        expected = (c @ votes) @ layer.gate.weight[k] + layer.gate.bias[k]
        expected = expected + grid[y, x, k] if stride == 1 else expected
        torch.testing.assert_close(out[y, x, k], expected.tanh())


def test_messages_of_every_place_add_up() -> None:
    layer = AttentionClassCaps(width=3, types=2, in_dim=4, classes=3, dim=5).eval()
    torch.nn.init.normal_(layer.bias)
    found = []
    layer.way.register_forward_hook(lambda way, given, total: found.append((total, given[1])))
    layer(torch.randn(2, 18, 4))
    total, messages = found[0]
    direction = torch.randn_like(total)
    along = messages.along(direction)
    assert along.shape == messages.coupling.shape == (2, 1, 3, 18)
    torch.testing.assert_close(along.sum((1, 3)), (direction * total).sum(-1))
    # a place that is empty adds its share of the bias and nothing else
    layer.bias.data.zero_()
    empty = torch.randn(1, 18, 4)
    empty[:, 4:6] = 0
    layer(empty)
    assert (found[1][1].along(torch.randn(1, 3, 5))[..., 4:6] == 0).all()


def test_the_score_is_a_length_below_1() -> None:
    model = ARCapsNet.from_preset("tiny", num_classes=3).eval()
    with record_couplings(model) as couplings:
        output = model(torch.rand(4, 1, 32, 32))
    torch.testing.assert_close(output.logits, output.class_capsules.norm(dim=-1) / 6**0.5)
    assert output.logits.max() < 1
    assert [each.branch for each in couplings] == ["attention"] * 3
    for each in couplings:
        torch.testing.assert_close(each.coupling.sum(-1), torch.ones(each.coupling.shape[:-1]))


def test_children_are_dropped_in_training_alone() -> None:
    model = ARCapsNet.from_preset("tiny", num_classes=3).train()
    image = torch.rand(2, 1, 32, 32)
    assert not torch.allclose(model(image).logits, model(image).logits)
