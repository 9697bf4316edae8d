"""Couplings are watched and replaced from outside, and everything is as before afterwards."""

import pytest
import torch
from torch import Tensor, nn

from parsecaps.models import ParseCaps
from parsecaps.nn import Coupling, record_couplings, replace_couplings
from parsecaps.nn.couplings import given, strongest, uniform
from tests.messages import refused


def tiny(**changes: object) -> ParseCaps:
    return ParseCaps.from_preset("tiny", num_classes=3, **changes).eval()


def num_hooks(model: nn.Module) -> int:
    return sum(len(module._forward_hooks) for module in model.modules())


IMAGE = torch.rand(2, 1, 32, 32, generator=torch.Generator().manual_seed(1))


class TestRecord:
    def test_the_order_and_the_names_of_the_cells(self) -> None:
        model = tiny()
        with record_couplings(model) as recorded:
            model(IMAGE)
        cells = [f"blocks.{i}.{j}" for i, block in enumerate(model.blocks) for j in range(len(block))]
        assert [(r.name, r.branch) for r in recorded] == [(c, b) for c in cells for b in ("sparse", "axial")]

    def test_recording_changes_nothing(self) -> None:
        model = tiny()
        before = model(IMAGE)
        with record_couplings(model):
            during = model(IMAGE)
        assert torch.equal(before.logits, during.logits)
        assert num_hooks(model) == 0

    def test_each_pass_is_recorded(self) -> None:
        model = tiny()
        with record_couplings(model) as recorded:
            model(IMAGE)
            once = len(recorded)
            model(IMAGE)
        assert len(recorded) == 2 * once
        model(IMAGE)
        assert len(recorded) == 2 * once

    def test_the_hooks_go_even_if_something_fails(self) -> None:
        model = tiny()
        with pytest.raises(RuntimeError, match="on purpose"), record_couplings(model):
            raise RuntimeError("on purpose")
        assert num_hooks(model) == 0

    def test_a_model_without_couplings(self) -> None:
        with refused(ValueError):
            record_couplings(nn.Linear(2, 2)).__enter__()


class TestReplace:
    def test_the_same_couplings_give_the_same_output(self) -> None:
        model = tiny()
        before = model(IMAGE).logits
        with replace_couplings(model, lambda module, c: c):
            assert torch.equal(model(IMAGE).logits, before)

    def test_the_hooks_go_even_if_the_rule_fails(self) -> None:
        def fail(module: Coupling, c: Tensor) -> Tensor:
            raise RuntimeError("on purpose")

        model = tiny()
        before = model(IMAGE).logits
        with pytest.raises(RuntimeError, match="on purpose"), replace_couplings(model, fail):
            model(IMAGE)
        assert num_hooks(model) == 0
        assert torch.equal(model(IMAGE).logits, before)

    def test_a_recorder_inside_sees_what_the_parents_use(self) -> None:
        model = tiny()
        with replace_couplings(model, uniform), record_couplings(model) as recorded:
            model(IMAGE)
        for r in recorded:
            assert r.coupling.requires_grad is False
            values = r.coupling[r.coupling > 0]
            assert len(values.unique()) <= 8 if r.branch == "sparse" else len(values.unique()) == 1

    def test_a_rule_can_be_differentiated(self) -> None:
        model = tiny()
        with replace_couplings(model, strongest(2)):
            model(IMAGE).logits.sum().backward()
        assert model.blocks[0][0].routing.sparse.value.weight.grad.abs().max() > 0


class TestRules:
    @pytest.mark.parametrize("changes", [{}, {"radius": (-1, -1, -1)}])
    def test_uniform_shares_among_the_children_in_reach(self, changes: dict[str, object]) -> None:
        model = tiny(**changes)
        with record_couplings(model) as free:
            model(IMAGE)
        with replace_couplings(model, uniform), record_couplings(model) as recorded:
            model(IMAGE)
        for before, r in zip(free, recorded, strict=True):
            c = r.coupling
            torch.testing.assert_close(c.sum(-1), torch.ones(c.shape[:-1]))
            torch.testing.assert_close(c.amax(-1), 1 / (c > 0).sum(-1))  # all that are not 0 are equal
            assert ((c > 0) | (before.coupling == 0)).all()

    @pytest.mark.parametrize("changes", [{}, {"radius": (-1, -1, -1)}, {"over": "parents"}])
    def test_given_couplings_are_used(self, changes: dict[str, object]) -> None:
        """Its own change nothing; those of one image are used by all."""
        model = tiny(**changes)
        own: dict[Coupling, Tensor] = {}
        with replace_couplings(model, lambda module, c: own.setdefault(module, c)):
            before = model(IMAGE).logits
        with replace_couplings(model, given(own)):
            assert torch.equal(model(IMAGE).logits, before)
        one = {module: c[:1].double() for module, c in own.items()}
        with replace_couplings(model, given(one)), record_couplings(model) as recorded:
            model(IMAGE)
        for (module, c), r in zip(own.items(), recorded, strict=True):
            assert torch.equal(r.coupling, module.dense(c)[:1].expand_as(r.coupling))

    @pytest.mark.parametrize("count", [1, 2, 4])
    @pytest.mark.parametrize("changes", [{}, {"radius": (-1, -1, -1)}])
    def test_strongest_keeps_the_strongest_children(self, count: int, changes: dict[str, object]) -> None:
        model = tiny(**changes)
        first = model.blocks[0]
        u = model.primary(model.initial(IMAGE))
        with record_couplings(first) as free:
            first(u)
        with replace_couplings(first, strongest(count)), record_couplings(first) as recorded:
            first(u)
        free_sparse, cut = free[0].coupling, recorded[0].coupling
        assert (cut > 0).sum(-1).max() <= count
        torch.testing.assert_close(cut.sum(-1), torch.ones(cut.shape[:-1]))
        torch.testing.assert_close(cut.argmax(-1), free_sparse.argmax(-1))
        kept = torch.where(cut > 0, free_sparse, 0)
        torch.testing.assert_close(kept.sum(-1), free_sparse.topk(count).values.sum(-1))
        torch.testing.assert_close(kept / kept.sum(-1, keepdim=True), cut)
        assert torch.equal(free[1].coupling, recorded[1].coupling)  # the axial branch stays

    def test_strongest_means_children_also_where_a_child_chooses_its_parents(self) -> None:
        model = tiny(over="parents")
        with replace_couplings(model, strongest(2)), record_couplings(model) as recorded:
            model(IMAGE)
        assert all((r.coupling > 0).sum(-1).max() <= 2 for r in recorded if r.branch == "sparse")

    def test_more_than_there_are_changes_nothing(self) -> None:
        model = tiny()
        before = model(IMAGE).logits
        with replace_couplings(model, strongest(10_000)):
            assert torch.equal(model(IMAGE).logits, before)


class TestCoupling:
    def test_a_learned_alpha_learns(self) -> None:
        coupling = Coupling(branch="sparse", dim=-1, alpha=1.5, learned=True)
        (alpha,) = coupling.parameters()
        coupling(torch.randn(2, 1, 3, 5)).square().sum().backward()
        assert alpha.grad is not None
        assert alpha.grad != 0

    @pytest.mark.parametrize("alpha", [0.99, 2.01, -1.0, float("nan"), float("inf")])
    @pytest.mark.parametrize("learned", [False, True])
    def test_alpha_out_of_range(self, alpha: float, learned: bool) -> None:
        with refused(ValueError):
            Coupling(branch="sparse", dim=-1, alpha=alpha, learned=learned)
