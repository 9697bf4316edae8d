"""The losses of concept models against the same in plain loops, with unknown concepts."""

import math

import pytest
import torch
from torch import Tensor

from parsecaps.functional.concept_losses import (
    coherence_loss,
    concept_cross_entropy,
    counter_loss,
    likeness,
    semantic_loss,
    uniqueness_loss,
)
from tests.messages import refused

B, M = 5, 4


@pytest.fixture
def concepts() -> Tensor:
    z = torch.randint(0, 2, (B, M)).float()
    z[0, 1] = z[3, 0] = torch.nan
    z[4] = torch.nan
    return z


def by_image(costs: list[list[float | None]]) -> float:
    """The mean over what is known of an image, then over the images of which something is."""
    known = [[cost for cost in row if cost is not None] for row in costs]
    means = [sum(row) / len(row) for row in known if row]
    return sum(means) / len(means)


def test_cross_entropy(concepts: Tensor) -> None:
    logits, weights = torch.randn(B, M), torch.rand(2, M)

    def cost(i: int, j: int) -> float | None:
        z, p = float(concepts[i, j]), 1 / (1 + math.exp(-float(logits[i, j])))
        return None if math.isnan(z) else -math.log(p if z else 1 - p) * float(weights[int(z), j])

    wanted = by_image([[cost(i, j) for j in range(M)] for i in range(B)])
    assert float(concept_cross_entropy(logits, concepts, weights)) == pytest.approx(wanted, rel=1e-5)


def test_semantic_and_counter(concepts: Tensor) -> None:
    maps, phrases = torch.randn(B, M, 6), torch.randn(M, 6)
    p = likeness(maps, phrases)
    for i, k in ((0, 1), (2, 3)):
        cosine = torch.nn.functional.cosine_similarity(maps[1, i], phrases[k], dim=0)
        assert float(p[1, i, k]) == pytest.approx(float(cosine), abs=1e-6)

    def semantic(b: int, i: int) -> float | None:
        z = float(concepts[b, i])
        others = sum(max(0.0, 1 + float(p[b, i, k] - p[b, i, i])) for k in range(M) if k != i)
        return None if math.isnan(z) else z * others

    def counter(b: int, i: int) -> float | None:
        z, other = float(concepts[b, i]), float(concepts[b - 1, i])
        if math.isnan(z):
            return None
        return max(0.0, float(p[b - 1, i, i] - p[b, i, i]) + 0.5) if z == 1 and other == 0 else 0.0

    for function, cost in ((semantic_loss, semantic), (counter_loss, counter)):
        wanted = by_image([[cost(b, i) for i in range(M)] for b in range(B)])
        assert wanted > 0
        assert float(function(p, concepts)) == pytest.approx(wanted, rel=1e-5)


def test_uniqueness(concepts: Tensor) -> None:
    activation = torch.rand(B, M)
    centred = activation - activation.mean(1, keepdim=True)
    torch.testing.assert_close(uniqueness_loss(activation, concepts), concept_cross_entropy(centred, concepts))
    shares = centred.tanh().softmax(1)
    costs = [-sum(math.log(shares[b, i]) for i in range(M) if concepts[b, i] == 1) for b in range(4)]
    assert float(uniqueness_loss(activation, concepts, "softmax")) == pytest.approx(sum(costs) / 4, rel=1e-5)


def test_coherence(concepts: Tensor) -> None:
    maps, mask = torch.rand(B, M, 3, 3), torch.randint(0, 2, (B, 1, 3, 3)).float()
    mask[2] = 0  # of which no mask is known
    mask[0, 0, 0, 0] = 1

    def cost(b: int, i: int) -> float | None:
        z = float(concepts[b, i])
        if math.isnan(z) or not mask[b].any():
            return None
        wanted = mask[b, 0] * z
        both = float((maps[b, i] * wanted).sum())
        return 1 - (2 * both + 1) / (float(maps[b, i].sum() + wanted.sum()) + 1)

    wanted = by_image([[cost(b, i) for i in range(M)] for b in range(B)])
    assert float(coherence_loss(maps, mask, concepts)) == pytest.approx(wanted, rel=1e-5)
    assert coherence_loss(mask, mask, torch.ones(B, 1)) < 1e-6


def test_what_is_unknown_costs_nothing_and_has_no_gradient(concepts: Tensor) -> None:
    values, unknown = torch.randn(B, M, M, requires_grad=True), torch.full((B, M), torch.nan)
    for function in (semantic_loss, counter_loss):
        loss = function(values, unknown)
        loss.backward()
        assert loss.item() == 0
        assert (values.grad == 0).all()
    loss = concept_cross_entropy(values[:, 0], concepts)
    values.grad = None
    loss.backward()
    assert (values.grad[:, 0][concepts.isnan()] == 0).all()
    with refused(ValueError):
        semantic_loss(values, unknown[:, :2])
