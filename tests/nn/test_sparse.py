"""Sparse attention: the two ways to compute it agree, and it is what its formula says."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from parsecaps.functional import entmax, squash
from parsecaps.nn import RoutingConfig, SparseAttention, record_couplings, saa
from parsecaps.nn.capsules import CapsuleScale
from parsecaps.nn.locality import Neighbourhood
from tests.messages import refused

GEOMETRY = {"width": 16, "in_dim": 4, "out_dim": 6, "stride": 2}


def new_attention(**changes: Any) -> SparseAttention:
    geometry = {name: changes.pop(name, value) for name, value in GEOMETRY.items()}
    settings = {"heads": 2, "radius": 1, "normalisation": "layer", **changes}
    return SparseAttention(**geometry, config=RoutingConfig(**settings))


def attention(**changes: Any) -> SparseAttention:
    layer = new_attention(**changes)
    with torch.no_grad():  # away from the start, where keys and priors are special
        for p in layer.parameters():
            p.add_(0.3 * torch.randn_like(p))
    return layer


def inputs(layer: SparseAttention, batch: int = 2) -> tuple[Tensor, Tensor]:
    width, stride = layer.neighbourhood.width, layer.neighbourhood.stride
    _, in_dim, out_dim = layer.value_maps.shape
    return torch.randn(batch, width**2, in_dim), torch.randn(batch, (-(-width // stride)) ** 2, out_dim)


def couplings(layer: SparseAttention, u: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    with record_couplings(layer) as recorded:
        out = layer(u, q)
    assert len(recorded) == 1
    return out, recorded[0].coupling


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"stride": 1},
        {"width": 17},
        {"width": 23, "stride": 1, "radius": 2},
        {"radius": 0},
        {"alpha": 1.0},
        {"alpha": 2.0},
        {"alpha": 1.3, "learn_alpha": True},
        {"locality": False},
        {"heads": 1},
        {"paper_logits": True},
        {"paper_logits": True, "normalisation": "layer"},
        {"squash_form": "quadratic"},
        {"whole_values": True},
        {"whole_values": True, "stride": 1, "heads": 3},
    ],
    ids=str,
)
def test_windowed_and_dense_routing_agree(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    changes = {"normalisation": "batch"} | changes
    windowed = attention(**changes).double()
    assert windowed.neighbourhood.windowed

    def always_dense(**arguments: Any) -> Neighbourhood:
        return Neighbourhood(**{**arguments, "windowed": False})

    monkeypatch.setattr(saa, "Neighbourhood", always_dense)
    dense = new_attention(**changes).double()
    assert not dense.neighbourhood.windowed
    dense.load_state_dict(windowed.state_dict())
    u, q = (x.double() for x in inputs(windowed))
    results = []
    for layer in (windowed, dense):
        children = u.clone().requires_grad_()
        out, c = couplings(layer, children, q)
        out.square().sum().backward()
        results.append((out, c, children.grad, *(p.grad for p in layer.parameters())))
    for first, second in zip(*results, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_whole_values_start_as_groups_do() -> None:
    torch.manual_seed(0)
    groups = new_attention()
    torch.manual_seed(0)
    whole = new_attention(whole_values=True)
    assert whole.value.weight.shape == (6, 2 * 4)
    torch.testing.assert_close(whole.value_maps, groups.value_maps)
    assert (groups.value_maps[0, :, 3:] == 0).all()
    assert (groups.value_maps[1, :, :3] == 0).all()
    u, q = inputs(groups)
    whole.load_state_dict({**groups.state_dict(), "value.weight": whole.value.weight})
    torch.testing.assert_close(whole(u, q), groups(u, q))


@pytest.mark.parametrize(
    "changes",
    [{}, {"radius": None}, {"over": "parents"}, {"stride": 1, "width": 5}, {"whole_values": True}],
    ids=str,
)
def test_parents_are_the_coupled_values(changes: dict[str, Any]) -> None:
    layer = attention(**changes)
    u, q = inputs(layer)
    out, c = couplings(layer, u, q)
    s = torch.einsum("bhpc,bci,hid->bpd", c, u, layer.value_maps)
    torch.testing.assert_close(out, squash(s))
    if not layer.whole_values:
        v = layer.value(u).unflatten(-1, (layer.heads, -1))  # (B, children, heads, d)
        torch.testing.assert_close(s, torch.einsum("bhpc,bchd->bphd", c, v).flatten(2))
    assert (c == 0).any()
    total = c.sum(-2 if changes.get("over") == "parents" else -1)
    torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize("over", ["children", "parents"])
def test_the_papers_equation(over: str) -> None:
    """One head, no prior and raw queries and keys: `C = entmax(Q K^T / sqrt(d))` (Eq. 3)."""
    layer = attention(
        width=6, heads=1, radius=None, locality=False, paper_logits=True, over=over, normalisation="layer"
    )
    u, q = inputs(layer)
    _, c = couplings(layer, u, q)
    logits = q @ layer.key(u).mT / math.sqrt(6)
    torch.testing.assert_close(c[:, 0], entmax(logits, 1.5, -1 if over == "children" else -2))


@pytest.mark.parametrize("training", [True, False])
def test_keys_are_scaled_as_batch_normalisation_would(training: bool) -> None:
    scale, norm = CapsuleScale(6), torch.nn.BatchNorm1d(6)
    with torch.no_grad():
        scale.weight.copy_(torch.rand(6) + 0.5)
        norm.weight.copy_(scale.weight)
    for _ in range(3):
        u = 3 * torch.randn(4, 9, 6) + torch.arange(6)
        scale(u), norm(u.flatten(0, 1))
    torch.testing.assert_close(scale.running_var, norm.running_var)
    scale.train(training), norm.train(training)
    shift = norm(u.flatten(0, 1)) - (u * scale(u)).flatten(0, 1)
    torch.testing.assert_close(shift, shift[:1].expand_as(shift), rtol=1e-4, atol=1e-4)


def test_a_head_chooses_by_its_own_parameters() -> None:
    layer = attention(normalisation="batch").eval()
    u, q = inputs(layer)
    other = q.clone()
    other[..., :3] = torch.randn_like(other[..., :3]) * 5
    _, first = couplings(layer, u, q)
    _, second = couplings(layer, u, other)
    assert not torch.equal(first[:, 0], second[:, 0])
    torch.testing.assert_close(first[:, 1], second[:, 1])


def test_a_parent_depends_on_its_window_alone() -> None:
    layer = attention(normalisation="layer")
    u, q = inputs(layer, 1)
    other = u.clone()
    other[0, 0] += 3  # the child in the corner
    changed = (layer(u, q) != layer(other, q)).any(-1)[0].nonzero().flatten().tolist()
    assert 0 in changed
    assert set(changed) <= {0, 1, 8, 9}  # the parents within reach, on a grid 8 wide


@pytest.mark.parametrize("over", ["children", "parents"])
@pytest.mark.parametrize("width", [4, 16])
def test_gradcheck(over: str, width: int) -> None:
    layer = attention(width=width, over=over, heads=1, in_dim=1, out_dim=2, alpha=1.0).double()
    u, q = (x.double().requires_grad_() for x in inputs(layer, 1))
    assert torch.autograd.gradcheck(lambda u, q: layer(u, q).sum(-1), (u, q), fast_mode=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 4},
        {"alpha": 0.5},
        {"alpha": 3},
        {"normalisation": "none"},
        {"over": "both"},
        {"squash_form": "linear"},
    ],
)
def test_bad_arguments(changes: dict[str, Any]) -> None:
    with refused(ValueError):
        new_attention(**changes)
