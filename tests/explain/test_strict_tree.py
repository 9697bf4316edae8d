"""A strict tree: one parent for each child, in every layout of the couplings."""

from pathlib import Path

import pytest
import torch

from parsecaps.explain.strict_tree import (
    load_statistics,
    save_statistics,
    strict_network,
    strict_statistics,
    strict_tree,
)
from parsecaps.models.pretrained import weights_digest
from parsecaps.nn import record_couplings, replace_couplings
from parsecaps.nn.capsules import CapsuleBatchNorm
from parsecaps.nn.recorder import RecordedCoupling
from tests.explain.small_models import KINDS, random_image, small_model
from tests.messages import LIBRARY, refused


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


class TestStatistics:
    def test_they_are_what_the_strict_network_sees(self) -> None:
        """With them, each normalisation gives a mean of 0 and a variance of 1 on these images, before its weights."""
        model = small_model()
        image = random_image(model, 6)
        statistics = strict_statistics(model, [image])
        norm = model.norm
        given: list[torch.Tensor] = []
        handle = norm.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0]))
        norms = [module for module in model.modules() if isinstance(module, CapsuleBatchNorm)]
        with replace_couplings(model, strict_tree), torch.no_grad():
            for each in norms:
                each.train()
            model(image)
        handle.remove()
        seen = given[0].flatten(0, 1)
        torch.testing.assert_close(statistics["norm.running_mean"], seen.mean(0))
        torch.testing.assert_close(statistics["norm.running_var"], seen.var(0))
        assert len(statistics) == 2 * len(norms)

    def test_the_model_is_left_as_it_was(self) -> None:
        model = small_model()
        image = random_image(model)
        before = {name: value.clone() for name, value in model.state_dict().items()}
        said = model(image).logits
        momenta = [module.momentum for module in model.modules() if isinstance(module, CapsuleBatchNorm)]
        statistics = strict_statistics(model, [image])
        assert [module.momentum for module in model.modules() if isinstance(module, CapsuleBatchNorm)] == momenta
        with replace_couplings(model, strict_tree):
            plain = model(image).logits
        with strict_network(model, statistics):
            adjusted = model(image).logits
        with refused(ValueError), strict_network(model, statistics):
            model(image[:, :, :-1])
        assert not torch.equal(adjusted, plain)
        assert torch.equal(model(image).logits, said)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert not any(module.training for module in model.modules())

    def test_they_stay_with_their_model(self, tmp_path: Path) -> None:
        model = small_model()
        assert load_statistics(tmp_path, model) is None
        statistics = strict_statistics(model, [random_image(model)])
        save_statistics(tmp_path, statistics, weights_digest(model))
        found = load_statistics(tmp_path, model)
        assert found is not None
        assert found.keys() == statistics.keys()
        assert all(torch.equal(found[name], value) for name, value in statistics.items())
        with refused(ValueError):
            load_statistics(tmp_path, small_model(seed=1))
        first = sorted(statistics)[0]
        save_statistics(tmp_path, {**statistics, first: statistics[first] * torch.nan}, weights_digest(model))
        with refused(ValueError):
            load_statistics(tmp_path, model)
        save_statistics(tmp_path, {first: statistics[first]}, weights_digest(model))
        with refused(ValueError):
            load_statistics(tmp_path, model)
        (tmp_path / "strict.safetensors").write_bytes(b"nothing")
        with refused(ValueError, hide=LIBRARY):
            load_statistics(tmp_path, model)

    def test_layer_normalisation_needs_none(self) -> None:
        model = small_model(normalisation="layer")
        assert strict_statistics(model, [random_image(model)]) == {}
