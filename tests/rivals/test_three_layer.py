"""The three-layer network with each routing that is compared in it."""

import math

import pytest
import torch

from parsecaps.functional import entmax, squash
from parsecaps.nn import record_couplings
from parsecaps.rivals import ThreeLayerCaps
from parsecaps.rivals.three_layer import SAAClassCaps
from tests.models.contract import CompileContract, ExportContract, ModelContract


class TestSAA(CompileContract, ExportContract):
    wrong = ({"routing": "em"},)

    def build(self) -> ThreeLayerCaps:
        return ThreeLayerCaps.from_preset("tiny", num_classes=3)


class TestDynamic(ModelContract):
    def build(self) -> ThreeLayerCaps:
        return ThreeLayerCaps.from_preset("tiny", num_classes=3, routing="dynamic")


class TestAttention(ModelContract):
    def build(self) -> ThreeLayerCaps:
        return ThreeLayerCaps.from_preset("tiny", num_classes=2, in_channels=3, image_size=35, routing="attention")


class TestSelfAttention(ModelContract):
    def build(self) -> ThreeLayerCaps:
        return ThreeLayerCaps.from_preset("tiny", num_classes=3, routing="self-attention")


@pytest.mark.parametrize(
    ("routing", "count"),
    [
        ("dynamic", 1_474_560),
        ("self-attention", 1_474_560 + 10 * 1152),
        # kernels and biases, attention over 32 types of 16 numbers, and a map of its own for each class
        ("attention", 1_474_560 + 32 * 160 + 10 * 512 * 32 + 10 * (256 + 16)),
        # kernels, normalisation, pointwise map, key, values; axial key, values and prior
        ("saa", 10 * 36 + 512 + 256 * 16 + 16 + 16 * 8 + 10 * 8 * 16 + 256 * 16 + 10 * 256 * 16 + 16 * 16),
    ],
)
def test_only_the_routing_differs(routing: str, count: int) -> None:
    model = ThreeLayerCaps(num_classes=10, routing=routing)
    assert model.primary.capsules == 1152
    assert sum(weight.numel() for weight in model.classes.parameters()) == count
    assert sum(weight.numel() for weight in model.parameters()) - count == 2_560 + 5_308_672


def test_saa_routing_as_written() -> None:
    """Against one class and one child after the other, with a matrix product for each."""
    routing = SAAClassCaps(width=3, types=2, in_dim=4, classes=3, dim=6).eval()
    u = torch.randn(2, 18, 4)
    got = routing(u)
    for b in range(2):
        places = u[b].view(9, 8)
        collected = torch.stack([sum(routing.depthwise[k, p] * places[p] for p in range(9)) for k in range(3)])
        q = routing.pointwise(routing.norm(collected))
        logits = torch.stack([torch.stack([q[k] @ (routing.key @ u[b, i]) for i in range(18)]) for k in range(3)])
        c = entmax(logits / math.sqrt(6))
        sparse = torch.stack([sum(c[k, i] * (u[b, i] @ routing.value[k]) for i in range(18)) for k in range(3)])
        c_axial = entmax(q.T @ routing.axial_key(collected) / math.sqrt(3) + routing.axial_prior)
        values = torch.stack([collected[k] @ routing.axial_value[k] for k in range(3)])
        axial = (c_axial @ values.T).T
        torch.testing.assert_close(got[b], squash(sparse, "quadratic") + squash(axial, "quadratic"))


def test_saa_couplings_are_sparse_shares_of_all_children() -> None:
    model = ThreeLayerCaps.from_preset("tiny", num_classes=3).eval()
    with torch.no_grad():
        model.classes.key.mul_(30)
    with record_couplings(model) as couplings:
        model(torch.rand(2, 1, 32, 32))
    sparse, axial = couplings
    assert (sparse.branch, axial.branch) == ("sparse", "axial")
    assert sparse.coupling.shape == (2, 1, 3, model.primary.capsules)
    assert axial.coupling.shape == (2, 1, 8, 8)
    for each in couplings:
        torch.testing.assert_close(each.coupling.sum(-1), torch.ones(each.coupling.shape[:-1]))
    assert (sparse.coupling == 0).any()


def test_saa_messages_add_up() -> None:
    routing = SAAClassCaps(width=3, types=2, in_dim=4, classes=3, dim=6).eval()
    found = []
    for way in (routing.way, routing.axial_way):
        way.register_forward_hook(lambda way, given, total: found.append((total, given[1])))
    routing(torch.randn(2, 18, 4))
    for total, messages in found:
        direction = torch.randn_like(total)
        along = messages.along(direction)
        assert along.shape == messages.coupling.shape == (2, 1, 3, 18)
        torch.testing.assert_close(along.sum((1, 3)), (direction * total).sum(-1), rtol=1e-4, atol=1e-5)
