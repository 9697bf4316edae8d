"""Routings: parents are made of nothing but coupled children, and every way says what each of them sent."""

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.nn import ROUTINGS, Messages, Routing, RoutingConfig, Way, record_couplings, replace_couplings
from parsecaps.nn.couplings import uniform
from tests.messages import refused

GEOMETRY: dict[str, Any] = {"width": 16, "in_dim": 4, "out_dim": 6, "stride": 2}
VARIANTS: list[dict[str, Any]] = [
    {},
    {"stride": 1, "in_dim": 6},
    {"radius": None, "width": 5},
    {"over": "parents"},
    {"whole_values": True},
    {"whole_values": True, "stride": 1, "in_dim": 6},
    {"paper_logits": True},
    {"normalisation": "layer"},
    {"routing": "dynamic"},
    {"routing": "dynamic", "stride": 1, "in_dim": 6},
    {"routing": "dynamic", "width": 5, "radius": None},
    {"routing": "dynamic", "width": 7, "iterations": 1},
]


def routing(**changes: Any) -> Routing:
    geometry = {name: changes.pop(name, value) for name, value in GEOMETRY.items()}
    config = RoutingConfig(**{"heads": 2, "radius": 1, **changes})
    return ROUTINGS[config.routing](**geometry, config=config).eval()


def children(changes: dict[str, Any] | None = None, batch: int = 2) -> Tensor:
    settings = {**GEOMETRY, **(changes or {})}
    return torch.randn(batch, settings["width"] ** 2, settings["in_dim"])


def zero_values(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.endswith("value.weight") or name == "weight":
                p.zero_()


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_shapes(changes: dict[str, Any]) -> None:
    layer = routing(**changes)
    settings = {**GEOMETRY, **changes}
    parents = (-(-settings["width"] // settings["stride"])) ** 2
    assert layer(children(changes)).shape == (2, parents, settings["out_dim"])


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_nothing_bypasses_the_couplings(changes: dict[str, Any]) -> None:
    """Without values there are no parents, whatever the children: no other path leads upwards."""
    layer = routing(**changes)
    zero_values(layer)
    for mode in (True, False):
        assert (layer.train(mode)(children(changes)) == 0).all()


def test_the_prediction_asks_and_is_never_added() -> None:
    layer = routing()
    u = children()
    free = layer(u)
    with replace_couplings(layer, uniform):
        before = layer(u)
        with torch.no_grad():
            for p in [*layer.predict.parameters(), *layer.query_norm.parameters()]:
                p.copy_(torch.randn_like(p) * 3)
        assert torch.equal(layer(u), before)
    assert not torch.allclose(layer(u), free)


def test_parents_are_the_sum_of_the_branches() -> None:
    layer = routing()
    u = children()
    q = layer.query_norm(layer.predict(u))
    torch.testing.assert_close(layer(u), layer.sparse(u, q) + layer.axial(u, q))


def test_the_branches_do_not_depend_on_each_other() -> None:
    layer = routing()
    u = children()
    q = layer.query_norm(layer.predict(u))
    with torch.no_grad():
        layer.axial.value.weight.zero_()
    torch.testing.assert_close(layer(u), layer.sparse(u, q))


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_way_is_the_sum_of_its_messages(changes: dict[str, Any]) -> None:
    """Along any direction the messages add up to what passes the way, couplings say where there are any."""
    layer = routing(**changes).double()
    heard: list[tuple[Way, Tensor, Messages]] = []
    for way in (module for module in layer.modules() if isinstance(module, Way)):
        way.register_forward_hook(lambda way, given, total: heard.append((way, total, given[1])))
    u = children(changes).double()
    parents = layer(u)
    assert [way.name for way, _, _ in heard] == (["agreement"] if "routing" in changes else ["sparse", "axial"])
    for _, total, messages in heard:
        direction = torch.randn_like(total)
        kept = messages.along(direction)
        assert kept.shape == messages.coupling.shape
        dense, coupling = messages.dense(kept), messages.dense(messages.coupling)
        assert dense.shape == coupling.shape
        assert dense.shape[2:] == (parents.shape[1], u.shape[1])
        torch.testing.assert_close(dense.sum((1, 3)), (direction * total).sum(-1))
        assert (dense[coupling == 0] == 0).all()
        assert coupling.min() >= 0
        torch.testing.assert_close(messages.dense(kept[:1]), dense[:1])


class TestDynamic:
    """Routing by agreement, against the procedure of the paper written out child by child."""

    @pytest.mark.parametrize("iterations", [1, 2, 3])
    @pytest.mark.parametrize(("width", "stride"), [(4, 2), (5, 2), (3, 1)])
    def test_equals_the_procedure(self, width: int, stride: int, iterations: int) -> None:
        layer = routing(
            routing="dynamic", width=width, stride=stride, in_dim=4, out_dim=4, iterations=iterations
        ).double()
        u = torch.randn(1, width**2, 4, dtype=torch.float64)
        side, parent_width = stride + 2, -(-width // stride)
        with record_couplings(layer) as recorded:
            found = layer(u)
        for head in range(2):
            u_hat: dict[tuple[int, int], Tensor] = {}  # (parent, child)
            for j, i in product(range(parent_width**2), range(width**2)):
                dy = i // width - (j // parent_width * stride - 1)
                dx = i % width - (j % parent_width * stride - 1)
                if 0 <= dy < side and 0 <= dx < side:
                    u_hat[j, i] = u[0, i] @ layer.weight[dy * side + dx][:, 2 * head : 2 * head + 2]
            b = dict.fromkeys(u_hat, torch.zeros((), dtype=torch.float64))
            for _ in range(iterations):
                c = {}
                for i in range(width**2):
                    mine = [pair for pair in u_hat if pair[1] == i]
                    shares = torch.stack([b[pair] for pair in mine]).softmax(0)
                    c.update(zip(mine, shares, strict=True))
                sums = [sum(c[p] * u_hat[p] for p in u_hat if p[0] == j) for j in range(parent_width**2)]
                v = [squash(s) for s in sums]
                b = {pair: b[pair] + u_hat[pair] @ v[pair[0]] for pair in b}
            torch.testing.assert_close(found[0, :, 2 * head : 2 * head + 2], torch.stack(v))
            for (j, i), share in c.items():
                torch.testing.assert_close(recorded[0].coupling[0, head, j, i], share)
        assert len(recorded) == 1  # the last of the iterations alone

    def test_a_child_shares_itself_out_among_its_parents(self) -> None:
        layer = routing(routing="dynamic")
        with record_couplings(layer) as recorded:
            layer(children())
        total = recorded[0].coupling.sum(-2)
        torch.testing.assert_close(total, torch.ones_like(total))

    def test_agreement_wins(self) -> None:
        """A child whose predictions agree with the others' goes where they agree."""
        layer = routing(routing="dynamic", width=2, stride=2, in_dim=2, out_dim=2, heads=1, iterations=6)
        assert layer(torch.randn(1, 4, 2)).shape == (1, 1, 2)
        wide = routing(routing="dynamic", width=4, stride=2, in_dim=2, out_dim=2, heads=1, iterations=6)
        with torch.no_grad():
            wide.weight.copy_(torch.eye(2).expand_as(wide.weight))
        u = torch.tensor([[1.0, 0.0]]).repeat(16, 1).unsqueeze(0)
        u[0, 0] = torch.tensor([-1.0, 0.0])  # alone against all
        with record_couplings(wide) as recorded:
            wide(u)
        coupling = recorded[0].coupling[0, 0]
        assert coupling[:, 5].max() < coupling[:, 5].sum() * 0.9  # many parents agree with it: it is shared
        assert wide(u).norm(dim=-1).argmin() == 0

    def test_gradients_flow_through_all_iterations(self) -> None:
        layer = routing(routing="dynamic", width=4, in_dim=2, out_dim=2).double()
        u = torch.randn(1, 16, 2, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(layer, (u,), fast_mode=True)
        found = torch.autograd.grad(layer(u).square().sum(), u)[0]
        with replace_couplings(layer, lambda module, c: c.detach()):
            kept = torch.autograd.grad(layer(u).square().sum(), u)[0]
        assert not torch.allclose(found, kept)

    def test_replaced_couplings_are_used(self) -> None:
        layer = routing(routing="dynamic")
        u = children()
        with replace_couplings(layer, uniform), record_couplings(layer) as recorded:
            other = layer(u)
        assert not torch.allclose(other, layer(u))
        torch.testing.assert_close(other, routing_with(layer, iterations=1)(u))
        assert len(recorded[0].coupling[recorded[0].coupling > 0].unique()) <= 9

    def test_heads_divide_the_dimension(self) -> None:
        with refused(ValueError):
            routing(routing="dynamic", heads=4)


def routing_with(layer: Routing, iterations: int) -> Routing:
    """The same weights, with another number of iterations."""
    other = routing(routing="dynamic", iterations=iterations)
    other.load_state_dict(layer.state_dict())
    return other
