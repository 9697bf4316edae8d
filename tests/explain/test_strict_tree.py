"""A strict tree: one parent for each child, in every layout of the couplings."""

import pytest
import torch
from tests.explain.small_models import KINDS, random_image, small_model

from parsecaps.explain.strict_tree import strict_tree
from parsecaps.nn import record_couplings, replace_couplings
from parsecaps.nn.couplings import RecordedCoupling


def sparse(recorded: list[RecordedCoupling]) -> list[torch.Tensor]:
    return [r.coupling for r in recorded if r.branch == "sparse"]


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "odd size", "paper's cell"])
def test_each_child_has_one_parent(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    with record_couplings(model) as before:
        whole = model(image)
    with replace_couplings(model, strict_tree), record_couplings(model) as during:
        strict = model(image)
    assert not torch.equal(whole.logits, strict.logits)
    for c in sparse(during):  # (B, heads, parents, children)
        parents_of = (c > 0).any(1).sum(1)
        assert parents_of.max() == 1
        total = c.sum(-2 if kind == "over parents" else -1)
        torch.testing.assert_close(total[total > 0], torch.ones_like(total[total > 0]))
    first, kept = sparse(before)[0], sparse(during)[0]
    chosen = first.sum(1).argmax(1)  # (B, children)
    batch, _, parent, child = kept.nonzero().T
    assert torch.equal(chosen[batch, child], parent)


def test_where_the_grid_stays_a_capsule_stays() -> None:
    model = small_model()
    with replace_couplings(model, strict_tree), record_couplings(model) as during:
        model(random_image(model))
    last = sparse(during)[-1]
    assert last.shape[-1] == last.shape[-2]
    off = last * (1 - torch.eye(last.shape[-1]))
    assert off.abs().max() == 0


def test_couplings_in_proportion_stay_in_proportion() -> None:
    model = small_model(**KINDS["windowed"])
    image = random_image(model, 1)
    with record_couplings(model) as before:
        model(image)
    with replace_couplings(model, strict_tree), record_couplings(model) as during:
        model(image)
    first, kept = sparse(before)[0][0], sparse(during)[0][0]
    head, parent = (kept > 0).sum(-1).flatten().argmax().item(), None
    head, parent = divmod(int(head), kept.shape[1])
    row, was = kept[head, parent], first[head, parent]
    left = row > 0
    assert left.sum() >= 2
    torch.testing.assert_close(row[left], was[left] / was[left].sum())
