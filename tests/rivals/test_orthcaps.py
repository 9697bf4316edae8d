"""OrthCaps, after the paper's description, keeps the contract of every model."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from parsecaps.audit.redundancy import capsule_similarity
from parsecaps.explain.attribution import Target, grad_cam, has_routes
from parsecaps.functional import entmax
from parsecaps.models.summary import summarize
from parsecaps.models.transfer import transfer
from parsecaps.nn.capsules import CapsuleLayer
from parsecaps.rivals import OrthCaps
from parsecaps.rivals.orthcaps import (
    CapsulePruning,
    OrthBlock,
    OrthClassCaps,
    OrthConvCaps,
    OrthogonalAttention,
    householder,
    pruning_mask,
)
from tests.messages import refused
from tests.models.contract import CompileContract, ExportContract, ModelContract


def tiny(**changes: Any) -> OrthCaps:
    return OrthCaps.from_preset("tiny", **{"num_classes": 3, **changes})


class TestOrthCaps(CompileContract, ExportContract):
    wrong = ({"theta": 2.0}, {"stem_channels": (8, 8)}, {"dim": 0}, {"dropout": 1.5})

    def build(self) -> OrthCaps:
        return tiny(dropout=0.0)


class TestInColour(ModelContract):
    def build(self) -> OrthCaps:
        return tiny(num_classes=2, in_channels=3, image_size=50, theta=1.0, dropout=0.0)


def test_the_number_of_weights_against_the_later_code_of_the_authors() -> None:
    """Theirs has 422,752 at 224 pixels and three classes; what is missing here does nothing there."""
    matrices = 16 * 16 * 8 * 8 + 16 * 16 * 16 * 16 + 2 * 16 * 8 * 8 * 8  # of an older attention, never called
    layers = 2 * (16 * 9 + 16 + 16 * 128 + 128)  # two capsule layers that are never called
    attentions = (16 * 8 * 8 + 16 * 8) + sum(16 * n * m + 16 * n + 16 for m, n in ((8, 8), (8, 16), (16, 16)))
    repeated = 2 * (16 * 9 + 16)  # two of three convolutions whose output is overwritten
    biases = 32 + 64 + 128 + 128 + 256  # in front of a batch normalisation, which takes them out
    unused = matrices + layers + attentions + repeated + biases
    count = sum(weight.numel() for weight in OrthCaps(num_classes=3).parameters())
    assert count == 309_840
    assert count + unused == 422_752


def test_the_table_has_the_capsules_of_every_layer() -> None:
    rows = {row.name: (row.n, row.d) for row in summarize(OrthCaps(num_classes=3, image_size=112))}
    assert rows["primary capsules"] == (8 * 14 * 14, 16)
    assert rows["block"] == (16 * 7 * 7, 16)
    assert rows["class capsules"] == (3, 16)


def test_the_deep_one_has_the_types_of_the_paper() -> None:
    model = OrthCaps.from_preset("deep", num_classes=3, image_size=112)
    rows = {row.name: (row.n, row.d) for row in summarize(model)}
    assert rows["primary capsules"] == (16 * 14 * 14, 16)
    assert [rows[f"block {i}"] for i in (1, 2, 3)] == [(32 * 7 * 7, 16), (64 * 4 * 4, 16), (128 * 4 * 4, 16)]
    assert rows["class capsules"] == (3, 16)


@pytest.mark.parametrize(
    ("size", "stem", "top"), [(28, 28, 7), (32, 32, 8), (45, 23, 6), (64, 32, 8), (100, 25, 7), (224, 28, 7)]
)
def test_smaller_images_are_halved_less_often(size: int, stem: int, top: int) -> None:
    model = tiny(image_size=size).eval()
    seen = []
    model.stem.register_forward_hook(lambda module, given, out: seen.append(out.shape[-1]))
    assert model(torch.rand(1, 1, size, size)).logits.shape == (1, 3)
    assert seen == [stem]
    assert model.classes.width == top


def test_the_score_is_the_length_of_the_class_capsule() -> None:
    output = tiny().eval()(torch.rand(4, 1, 32, 32))
    torch.testing.assert_close(output.logits, output.class_capsules.norm(dim=-1))
    assert output.logits.max() < 1


def test_pruning_changes_the_answer_and_the_routing_weights_are_trained() -> None:
    model = tiny().eval()
    image = torch.rand(4, 1, 32, 32)
    answers = []
    for theta in (1.0, -1.0):  # nothing goes; all but the longest go
        model.pruning.theta = theta
        answers.append(model(image).logits)
    assert not torch.allclose(*answers)
    routing = [module for module in model.modules() if isinstance(module, OrthogonalAttention)]
    trained = {id(weight) for weight in model.parameters()}
    assert len(routing) == 3
    assert all({id(each.choose), id(each.turn)} <= trained for each in routing)


def test_dropout_is_off_when_it_answers() -> None:
    model = tiny(dropout=0.5).eval()
    image = torch.rand(2, 1, 32, 32)
    assert torch.equal(model(image).logits, model(image).logits)
    model.classes.train()
    assert not torch.equal(model(image).logits, model(image).logits)


def test_layers_of_capsules_are_marked_and_gradient_maps_work() -> None:
    model = tiny().eval()
    marked = [name for name, module in model.named_modules() if isinstance(module, CapsuleLayer)]
    assert marked == ["primary", "pruning", "block", "classes"]
    assert [each.layer for each in capsule_similarity(model, [torch.rand(2, 1, 32, 32)])] == marked
    assert not has_routes(model)  # a child of its class capsules is a whole map, without a place
    assert grad_cam(model, torch.rand(2, 1, 32, 32), [Target("classes", 1)]).shape == (2, 1, 32, 32)


def test_classes_in_another_order_take_what_is_theirs() -> None:
    model, other = tiny(), tiny()
    transfer(model, other.state_dict(), {"classes": ["a", "b", "c"]}, {"classes": ["c", "a", "d"]})
    for name in ("weight", "bias"):
        torch.testing.assert_close(getattr(model.classes, name)[0], getattr(other.classes, name)[2])
    torch.testing.assert_close(model.classes.attention.choose[:, 1], other.classes.attention.choose[:, 0])
    torch.testing.assert_close(model.classes.attention.turn[1], other.classes.attention.turn[0])


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
    with refused(ValueError):
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
