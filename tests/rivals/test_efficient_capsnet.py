"""Efficient-CapsNet keeps the contract, has the published number of weights, and routes by self-attention."""

import math

import pytest
import torch
from torch import nn

from parsecaps.nn import record_couplings
from parsecaps.nn.recorder import record_ways
from parsecaps.rivals import EfficientCapsNet
from parsecaps.rivals.class_capsules import ClassRoutingConfig, SelfAttentionClassRouting
from tests.models.contract import ExportContract, ModelContract


class TestEfficientCapsNet(ExportContract):
    wrong = ({"channels": (8, 8, 8)}, {"channels": (8, 8, 8, 13)})

    def build(self) -> EfficientCapsNet:
        return EfficientCapsNet.from_preset("tiny", num_classes=3)


class TestLargeInColour(ModelContract):
    def build(self) -> EfficientCapsNet:
        return EfficientCapsNet.from_preset("tiny", num_classes=2, in_channels=3, image_size=49, decoder=False)


@pytest.mark.parametrize(
    ("classes", "channels", "size", "encoder"),
    [(10, 1, 28, 161_824), (3, 1, 28, 147_376), (5, 2, 48, 151_664), (3, 1, 64, 156_208), (2, 3, 64, 157_280)],
)
def test_the_published_number_of_weights(classes: int, channels: int, size: int, encoder: int) -> None:
    model = EfficientCapsNet(num_classes=classes, in_channels=channels, image_size=size, decoder=False)
    assert sum(weight.numel() for weight in model.parameters()) == encoder


def test_the_decoder_of_digits() -> None:
    model = EfficientCapsNet.from_preset("digits", num_classes=10)
    assert sum(weight.numel() for weight in model.decoder.parameters()) == 1_411_344


@pytest.mark.parametrize("size", [28, 47, 48, 101, 224])
def test_the_kernel_is_as_large_as_the_map_at_every_size(size: int) -> None:
    model = EfficientCapsNet.from_preset("tiny", num_classes=3, image_size=size).eval()
    seen: list[tuple[int, ...]] = []
    model.stem.register_forward_hook(lambda module, given, out: seen.append(tuple(out.shape[2:])))
    model(torch.rand(1, 1, size, size))
    assert seen == [tuple(model.primary.depthwise.kernel_size)]
    assert isinstance(model.stem[2], nn.GroupNorm if size >= 48 else nn.BatchNorm2d)
    assert (model.decoder is None) == (size > 128)
    norms = [layer for layer in model.stem if isinstance(layer, nn.GroupNorm | nn.BatchNorm2d)]
    assert len(norms) == 4
    assert {layer.eps for layer in norms} == {1e-3}  # the default of Keras, not that of torch


def test_a_vote_counts_as_it_agrees_with_the_others() -> None:
    routing = SelfAttentionClassRouting(ClassRoutingConfig(capsules=5, classes=3, dim=4, squash_form="exponential"))
    nn.init.normal_(routing.bias)
    votes = torch.randn(2, 3, 5, 4)
    for b in range(2):  # one pair of votes after the other, as the paper writes it
        a = torch.zeros(3, 5)
        for j in range(3):
            for i in range(5):
                a[j, i] = sum(float(votes[b, j, i] @ votes[b, j, k]) for k in range(5)) / math.sqrt(4)
        c = a.softmax(0) + routing.bias
        s = (c.unsqueeze(-1) * votes[b]).sum(1)
        length = s.norm(dim=-1, keepdim=True)
        torch.testing.assert_close(routing(votes)[b], (1 - torch.exp(-length)) * s / length)


def test_couplings_of_a_child_are_shared_out_among_classes() -> None:
    model = EfficientCapsNet.from_preset("tiny", num_classes=3).eval()
    with record_couplings(model) as couplings:
        model(torch.rand(2, 1, 32, 32))
    assert [tuple(each.coupling.shape) for each in couplings] == [(2, 1, 3, 4)]
    torch.testing.assert_close(couplings[0].coupling.sum(2), torch.ones(2, 1, 4))


def test_messages_add_up_to_the_capsules() -> None:
    model = EfficientCapsNet.from_preset("tiny", num_classes=3).eval()
    with record_ways(model) as ways:  # ways can be listened to in any model
        model(torch.rand(2, 1, 32, 32))
    total, messages = ways[0].total, ways[0].messages
    direction = torch.randn_like(total)
    torch.testing.assert_close(messages.along(direction).sum((1, 3)), (direction * total).sum(-1))
