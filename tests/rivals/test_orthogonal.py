"""Pruning, reflections and the attention of OrthCaps, against loops."""

import math

import pytest
import torch
from torch import Tensor

from parsecaps.functional import entmax
from parsecaps.rivals.orthcaps import (
    CapsulePruning,
    OrthBlock,
    OrthClassCaps,
    OrthConvCaps,
    OrthogonalAttention,
    householder,
    pruning_mask,
)

DOUBLE = torch.float64


def test_householder_matrices_are_orthogonal_reflections() -> None:
    v = torch.randn(3, 4, 7, dtype=DOUBLE)
    h = householder(v)
    assert h.shape == (3, 4, 7, 7)
    torch.testing.assert_close(h @ h.mT, torch.eye(7, dtype=DOUBLE).expand_as(h))
    torch.testing.assert_close(h, h.mT)
    torch.testing.assert_close(torch.linalg.det(h), torch.full((3, 4), -1.0, dtype=DOUBLE))
    torch.testing.assert_close((h @ v.unsqueeze(-1)).squeeze(-1), -v)


def test_a_reflection_of_nothing_is_finite() -> None:
    v = torch.zeros(2, 3, requires_grad=True)
    householder(v).sum().backward()
    assert v.grad is not None
    assert v.grad.isfinite().all()


def kept_by_loops(capsules: Tensor, theta: float) -> list[bool]:
    """One image (n, d), pair by pair."""
    n = len(capsules)
    kept = [True] * n
    order = sorted(range(n), key=lambda i: -float(capsules[i].norm()))  # the longest first; Python keeps equal ones
    for place, strong in enumerate(order):
        for weak in order[place + 1 :]:
            lengths = float(capsules[strong].norm()) * float(capsules[weak].norm())
            if float(capsules[strong] @ capsules[weak]) / lengths > theta:
                kept[weak] = False
    return kept


@pytest.mark.parametrize("theta", [-0.5, 0.0, 0.4, 0.7, 1.0])
def test_pruning_against_all_pairs(theta: float) -> None:
    capsules = torch.randn(20, 9, 3, dtype=DOUBLE) * torch.rand(20, 9, 1, dtype=DOUBLE)
    expected = [kept_by_loops(each, theta) for each in capsules]
    assert pruning_mask(capsules, theta).tolist() == expected
    if theta == 0.4:
        assert 0.1 < torch.tensor(expected).float().mean() < 0.9  # else nothing was tried


def test_the_less_active_of_two_goes() -> None:
    capsules = torch.tensor([[[1.0, 0.0], [3.0, 0.1], [0.0, 2.0], [0.0, 2.0]]])
    assert pruning_mask(capsules, 0.7).tolist() == [[False, True, True, False]]


def test_pruned_types_are_0_at_all_positions_and_the_others_as_they_were() -> None:
    pruning = CapsulePruning(types=3, theta=0.7)
    u = torch.randn(2, 4, 3, 5)  # (B, positions, types, d)
    u[0, :, 2] = 0.5 * u[0, :, 0]
    pruned = pruning(u.view(2, 12, 5)).view(2, 4, 3, 5)
    expected = u.clone()
    expected[0, :, 2] = 0
    torch.testing.assert_close(pruned, expected)
    assert not list(pruning.parameters())


def test_a_similarity_is_at_most_1() -> None:
    with pytest.raises(ValueError, match=r"theta is 1.5; give a cosine similarity, from -1 to 1"):
        CapsulePruning(types=3, theta=1.5)


def attended_by_loops(layer: OrthogonalAttention, votes: Tensor) -> Tensor:
    """One image at one position: votes (parents, children, dim)."""
    parents, children, dim = votes.shape
    found = torch.zeros(parents, dim, dtype=votes.dtype)
    for j in range(parents):
        logits = torch.zeros(children, dtype=votes.dtype)
        for k in range(dim):
            v = layer.choose[k, j]
            h = torch.eye(children, dtype=votes.dtype) - 2 * torch.outer(v, v) / (v @ v)
            logits += h @ votes[j, :, k]
        c = entmax(logits / math.sqrt(dim), 1.5)
        s = sum(c[i] * votes[j, i] for i in range(children))
        t = layer.turn[j]
        found[j] = (torch.eye(dim, dtype=votes.dtype) - 2 * torch.outer(t, t) / (t @ t)) @ s
    return found if layer.scale is None else found * layer.scale.flatten()


@pytest.mark.parametrize("simplified", [False, True])
def test_attention_against_loops(simplified: bool) -> None:
    layer = OrthogonalAttention(children=5, parents=3, dim=4, simplified=simplified).double()
    if layer.scale is not None:
        torch.nn.init.normal_(layer.scale)
    votes = 2 * torch.randn(2, 3, 5, 4, 2, 3, dtype=DOUBLE)
    found = layer(votes)
    for b, y, x in ((0, 0, 0), (1, 1, 2), (1, 0, 1)):
        torch.testing.assert_close(found[b, :, :, y, x], attended_by_loops(layer, votes[b, :, :, :, y, x]))


def test_couplings_are_sparse_shares_of_the_children() -> None:
    layer = OrthogonalAttention(children=8, parents=3, dim=4)
    c = layer.couplings(3 * torch.randn(2, 3, 8, 4, 5, 5))
    assert c.shape == (2, 3, 8, 5, 5)
    torch.testing.assert_close(c.sum(2), torch.ones(2, 3, 5, 5))
    assert (c == 0).float().mean() > 0.2  # a softmax has no zeros


def test_the_routing_weights_are_parameters_that_learn() -> None:
    layer = OrthConvCaps(width=4, in_types=3, types=2, dim=4)
    weights = {name for name, _ in layer.named_parameters()}
    assert {"attention.choose", "attention.turn"} <= weights
    assert sum(p.numel() for p in layer.attention.parameters()) == 4 * 2 * 3 + 4 * 2  # d n m + d n
    layer(torch.randn(2, 48, 4)).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())


@pytest.mark.parametrize("width", [5, 8])
def test_shapes_and_lengths(width: int) -> None:
    block = OrthBlock(width=width, in_types=3, types=6, dim=4)
    u = block(torch.randn(2, width * width * 3, 4))
    after = -(-width // 2)
    assert u.shape == (2, after * after * 6, 4)
    assert u.norm(dim=-1).max() < 1
    classes = OrthClassCaps(width=after, types=6, dim=4, num_classes=3, dropout=0.0)
    capsules = classes(u)
    assert capsules.shape == (2, 3, 4)
    assert capsules.norm(dim=-1).max() < 1


def test_votes_of_a_child_do_not_depend_on_the_others() -> None:
    layer = OrthConvCaps(width=4, in_types=3, types=2, dim=4)
    seen: list[Tensor] = []
    layer.attention.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    u = torch.randn(1, 16, 3, 4)
    changed = u.clone()
    changed[:, :, 1] += 1
    for each in (u, changed):
        layer(each.view(1, 48, 4))
    before, after = seen
    assert before.shape == (1, 2, 3, 4, 4, 4)
    assert torch.equal(before[:, :, [0, 2]], after[:, :, [0, 2]])
    assert not torch.equal(before[:, :, 1], after[:, :, 1])
