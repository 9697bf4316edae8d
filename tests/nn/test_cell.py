"""The capsule cell and the block of cells."""

from typing import Any

import pytest
import torch

from parsecaps.nn import CapsuleCell, RoutingConfig, capsule_block, record_couplings
from tests.messages import refused

SETTINGS: dict[str, Any] = {"width": 8, "in_dim": 4, "out_dim": 6, "stride": 2, "mlp_ratio": 2, "dropout": 0.0}


def config(**changes: Any) -> RoutingConfig:
    return RoutingConfig(**{"heads": 2, "radius": 1, **changes})


def cell(routing: dict[str, Any] | None = None, **changes: Any) -> CapsuleCell:
    return CapsuleCell(**{**SETTINGS, **changes}, config=config(**(routing or {}))).eval()


@pytest.mark.parametrize(("width", "stride", "parents"), [(8, 2, 16), (7, 2, 16), (6, 1, 36), (1, 2, 1), (1, 1, 1)])
def test_shapes(width: int, stride: int, parents: int) -> None:
    in_dim = 4 if stride == 2 else 6
    assert cell(width=width, stride=stride, in_dim=in_dim)(torch.randn(2, width**2, in_dim)).shape == (2, parents, 6)


@pytest.mark.parametrize("normalisation", ["batch", "layer"])
def test_a_strided_cell_without_values_forgets_the_image(normalisation: str) -> None:
    layer = cell({"normalisation": normalisation})
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.endswith("value.weight"):
                p.zero_()
    for mode in (True, False):
        out = layer.train(mode)(torch.randn(3, 64, 4))
        assert torch.equal(out, out[:1].expand_as(out))


def test_a_cell_of_stride_1_adds_to_what_was_there() -> None:
    layer = cell(stride=1, in_dim=6)
    u = torch.randn(2, 64, 6)
    parents = layer.norm(layer.routing(u) + u)
    torch.testing.assert_close(layer(u), parents + layer.mlp(parents))


def test_after_the_routing_capsules_do_not_mix() -> None:
    layer = cell()
    with torch.no_grad():
        for name, p in layer.routing.named_parameters():
            if name.endswith("value.weight"):
                p.zero_()
    extra = torch.zeros(1, 16, 6)
    before = layer(torch.zeros(1, 64, 4))
    extra[0, 5] = 1
    handle = layer.routing.register_forward_hook(lambda module, inputs, out: out + extra)
    after = layer(torch.zeros(1, 64, 4))
    handle.remove()
    assert (before != after).any(-1)[0].nonzero().flatten().tolist() == [5]


def test_dropout_is_off_in_evaluation() -> None:
    layer = cell(dropout=0.5)
    u = torch.randn(2, 64, 4)
    assert torch.equal(layer(u), layer(u))
    layer.train()
    assert not torch.equal(layer(u), layer(u))


@pytest.mark.parametrize(("cells", "width", "parents"), [(1, 8, 16), (3, 7, 16)])
def test_a_block_halves_the_grid_once(cells: int, width: int, parents: int) -> None:
    settings = {**SETTINGS, "width": width}
    block = capsule_block(cells=cells, **settings, config=config()).eval()
    assert len(block) == cells
    with record_couplings(block) as recorded:
        assert block(torch.randn(2, width**2, 4)).shape == (2, parents, 6)
    shapes = [tuple(r.coupling.shape[2:]) for r in recorded if r.branch == "sparse"]
    assert shapes == [(parents, width**2)] + [(parents, parents)] * (cells - 1)


@pytest.mark.parametrize(
    "routing",
    [
        {"routing": "dynamik"},
        {"routing": "x"},
        {"iterations": 5},
        {"routing": "dynamic", "whole_values": True},
        {"heads": 0},
        {"iterations": 0},
        {"over": "both"},
        {"squash_form": "linear"},
        {"normalisation": "none"},
    ],
)
def test_a_routing_that_is_none(routing: dict[str, Any]) -> None:
    with refused(ValueError, hide="choose one of saa, .*"):  # more of them where studies were imported
        cell(routing)
