"""Votes, routing by agreement against plain loops, and what the messages to class capsules say."""

import math

import pytest
import torch
from torch import Tensor

from parsecaps.functional import squash
from parsecaps.nn import CapsuleGrid, SharedVotes, Votes, Way, record_couplings
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.nn.recorder import record_ways
from parsecaps.rivals.class_capsules import (
    CLASS_ROUTINGS,
    ClassCapsules,
    ClassDecoder,
    ClassRoutingConfig,
    UnroutedCapsules,
    coupled_votes,
)
from tests.messages import refused

CONFIG = ClassRoutingConfig(capsules=6, classes=3, dim=4)


def votes_of(layer: ClassCapsules, u: Tensor) -> Tensor:
    """By one product for every pair: (B, K, n, d)."""
    w = layer.votes.weight  # (n, in, K, d)
    rows = [[[u[b, i] @ w[i, :, j] for i in range(len(w))] for j in range(w.shape[2])] for b in range(len(u))]
    return torch.stack([torch.stack([torch.stack(each) for each in image]) for image in rows])


def agreement(u_hat: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """The algorithm as Sabour, Frosst and Hinton print it, for one image (K, n, d): its capsules and couplings."""
    classes, children, _ = u_hat.shape
    b = [[0.0 * u_hat[0, 0, 0] for _ in range(classes)] for _ in range(children)]
    for step in range(iterations):
        c = [[each.exp() / sum(other.exp() for other in row) for each in row] for row in b]
        s = [sum(c[i][j] * u_hat[j, i] for i in range(children)) for j in range(classes)]
        v = [each.square().sum() / (1 + each.square().sum()) * each / each.norm() for each in s]
        if step < iterations - 1:
            b = [[b[i][j] + u_hat[j, i] @ v[j] for j in range(classes)] for i in range(children)]
    return torch.stack(v), torch.stack([torch.stack(row) for row in c]).T


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_routing_by_agreement_is_that_of_the_paper(iterations: int) -> None:
    config = ClassRoutingConfig(capsules=6, classes=3, dim=4, iterations=iterations)
    layer, u = ClassCapsules(in_dim=5, routing="dynamic", config=config).double(), torch.randn(2, 6, 5).double()
    with torch.no_grad():
        layer.votes.weight.mul_(10)  # so that children disagree
    with record_couplings(layer) as recorded:
        capsules = layer(u)
    expected = [agreement(u_hat, iterations) for u_hat in votes_of(layer, u)]
    torch.testing.assert_close(capsules, torch.stack([v for v, _ in expected]))
    assert recorded[0].coupling.shape == (2, 1, 3, 6)
    torch.testing.assert_close(recorded[0].coupling[:, 0], torch.stack([c for _, c in expected]).detach())


def test_gradients_go_through_all_iterations() -> None:
    routing = CLASS_ROUTINGS["dynamic"](CONFIG).double()
    u_hat = (3 * torch.randn(2, 3, 6, 4)).double().requires_grad_()
    torch.autograd.gradcheck(routing, (u_hat,))


def test_children_share_themselves_out_among_the_classes() -> None:
    layer = ClassCapsules(in_dim=5, routing="dynamic", config=CONFIG)
    with record_couplings(layer) as recorded:
        layer(3 * torch.randn(2, 6, 5))
    torch.testing.assert_close(recorded[0].coupling.sum(2), torch.ones(2, 1, 6))


def test_messages_add_up_to_the_sum() -> None:
    direction = torch.randn(2, 3, 4)
    u = torch.randn(2, 6, 5)
    for layer in (
        ClassCapsules(in_dim=5, routing="dynamic", config=CONFIG),
        UnroutedCapsules(in_dim=5, classes=3, dim=4),
    ):
        with record_ways(layer) as ways:
            capsules = layer(u)
        (way,) = ways
        assert way.messages.coupling.shape == (2, 1, 3, 6)
        along = way.messages.along(direction)
        assert along.shape == (2, 1, 3, 6)
        torch.testing.assert_close(along.sum((1, 3)), (direction * way.total).sum(-1), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(capsules, squash(way.total, "quadratic"))


def test_without_routing_all_children_count_alike_and_share_a_matrix() -> None:
    layer, u = UnroutedCapsules(in_dim=5, classes=3, dim=4), torch.randn(2, 6, 5)
    expected = squash(layer.votes(u).mean(2), "quadratic")
    torch.testing.assert_close(layer(u), expected)
    torch.testing.assert_close(layer(u.flip(1)), expected)
    assert layer.votes.weight.shape == (3, 5, 4)


def test_votes_of_a_shared_matrix_are_those_of_equal_ones() -> None:
    shared, own = SharedVotes(in_dim=5, parents=3, out_dim=4), Votes(capsules=6, in_dim=5, parents=3, out_dim=4)
    with torch.no_grad():
        own.weight.copy_(shared.weight.permute(1, 0, 2).expand_as(own.weight))
    u = torch.randn(2, 6, 5)
    torch.testing.assert_close(own(u), shared(u))


class Loudest(CapsuleLayer):
    """Each class listens to the child with the longest vote alone."""

    def __init__(self, config: ClassRoutingConfig) -> None:
        super().__init__()
        self.way = Way("loudest", chooses=True)

    def forward(self, u_hat: Tensor) -> Tensor:
        c = torch.nn.functional.one_hot(u_hat.norm(dim=-1).argmax(-1), u_hat.shape[2]).to(u_hat)
        return self.way((c.unsqueeze(2) @ u_hat).squeeze(2), coupled_votes(u_hat, c))


def test_a_routing_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CLASS_ROUTINGS, "loudest", Loudest)
    layer, u = ClassCapsules(in_dim=5, routing="loudest", config=CONFIG), torch.randn(2, 6, 5)
    votes = votes_of(layer, u)
    lengths = votes.norm(dim=-1)
    torch.testing.assert_close(layer(u).norm(dim=-1), lengths.amax(-1))


def test_unknown_routings_and_numbers() -> None:
    with refused(ValueError):
        ClassCapsules(in_dim=5, routing="em", config=CONFIG)
    with refused(ValueError):
        ClassRoutingConfig(capsules=6, classes=3, dim=4, iterations=0)


def test_where_a_grid_lies() -> None:
    layers = [torch.nn.Conv2d(1, 1, 9), torch.nn.ReLU(), torch.nn.Conv2d(1, 1, 9, stride=2)]
    grid = CapsuleGrid.behind(layers, width=6, types=32)
    assert (grid.first, grid.step, grid.reach, grid.capsules) == (8.5, 2, 8.5, 1152)
    image = torch.zeros(1, 1, 28, 28, requires_grad=True)
    out = image
    for layer in layers:
        out = layer(out) if not isinstance(layer, torch.nn.ReLU) else out
    out[0, 0, 2, 3].backward()
    rows, columns = (image.grad[0, 0].abs().sum(axis).nonzero().float() + 0.5 for axis in (1, 0))
    assert math.isclose(float(rows.mean()), grid.first + 2 * grid.step)
    assert math.isclose(float(columns.mean()), grid.first + 3 * grid.step)
    assert len(rows) == 2 * grid.reach


def build() -> ClassDecoder:
    return ClassDecoder(num_classes=3, dim=4, shape=(2, 5, 5), sizes=(8, 16))


def test_only_the_capsule_asked_for_is_drawn() -> None:
    decoder, capsules, index = build(), torch.randn(2, 3, 4), torch.tensor([2, 0])
    picture = decoder(capsules, index)
    assert picture.shape == (2, 2, 5, 5)
    assert 0 <= picture.min() <= picture.max() <= 1
    others = capsules.clone()
    others[0, :2], others[1, 1:] = 9.0, -9.0
    torch.testing.assert_close(decoder(others, index), picture)
    others[0, 2] += 1
    assert not torch.allclose(decoder(others, index)[0], picture[0])


def test_the_same_numbers_at_another_place_are_another_picture() -> None:
    decoder, capsules = build(), torch.randn(1, 1, 4).expand(1, 3, 4)
    assert not torch.allclose(decoder(capsules, torch.tensor([0])), decoder(capsules, torch.tensor([1])))


def test_the_layers_are_fully_connected() -> None:
    sizes = [12 * 8 + 8, 8 * 16 + 16, 16 * 50 + 50]
    assert sum(weight.numel() for weight in build().parameters()) == sum(sizes)
