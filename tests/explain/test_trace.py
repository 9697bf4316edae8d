"""One forward pass gives every message, and from the messages the pass can be made again."""

import pytest
import torch

from parsecaps.explain.attribution_path import trace
from parsecaps.functional import squash
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.nn import record_couplings
from parsecaps.nn.recorder import record_stages
from parsecaps.types import Output
from tests.explain.small_models import KINDS, random_image, small_model
from tests.messages import refused


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_is_the_sum_of_its_messages(kind: str) -> None:
    model = small_model(**KINDS[kind])
    for cell in trace(model, random_image(model)).cells:
        assert [each.way.name for each in cell.ways][-1:] == (
            ["residual"] if cell.module.residual else [cell.ways[-1].way.name]
        )
        for each in cell.ways:
            direction = torch.randn_like(each.total)
            brought = each.messages.dense(each.messages.along(direction))
            assert brought.shape[2:] == (cell.outcome.shape[1], cell.given.shape[1])
            torch.testing.assert_close(brought.sum((1, 3)), (direction * each.total).sum(-1))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "dynamic" not in kind])
def test_the_ways_make_the_parents_again(kind: str) -> None:
    model = small_model(**KINDS[kind])
    for cell in trace(model, random_image(model)).cells:
        totals = {each.way.name: each.total for each in cell.ways}
        form = cell.module.routing.sparse.squash_form
        parents = squash(totals["sparse"], form) + squash(totals["axial"], form)
        if cell.module.residual:
            assert torch.equal(totals["residual"], cell.given)
            parents = parents + totals["residual"]
        z = cell.module.norm(parents)
        torch.testing.assert_close(z + cell.module.mlp(z), cell.outcome)


def test_the_couplings_are_those_of_the_model() -> None:
    model = small_model(**KINDS["windowed"])
    image = random_image(model)
    with record_couplings(model) as couplings:
        model(image)
    sparse = [c.coupling for c in couplings if c.branch == "sparse"]
    assert model.blocks[0][0].routing.sparse.neighbourhood.windowed
    for cell, coupling in zip(trace(model, image).cells, sparse, strict=True):
        messages = cell.ways[0].messages
        assert torch.equal(messages.dense(messages.coupling), coupling)


@pytest.mark.parametrize("kind", KINDS)
def test_the_last_cells_are_read_out_as_the_model_does(kind: str) -> None:
    model = small_model(**KINDS[kind])
    traced = trace(model, random_image(model))
    values = traced.read_out(traced.run_cells(traced.layers[0]))
    torch.testing.assert_close(values["concepts"], traced.output.presence)
    torch.testing.assert_close(values["classes"], traced.output.logits)
    assert traced.leaves(traced.image).shape == traced.layers[0].shape


def test_a_model_without_concepts_has_classes_alone() -> None:
    model = small_model(num_concepts=0)
    traced = trace(model, random_image(model))
    assert traced.concepts is None
    assert list(traced.read_out(traced.layers[-1])) == ["classes"]


def test_a_model_in_training_is_refused() -> None:
    with refused(ValueError):
        trace(small_model().train(), torch.rand(1, 1, 40, 40).double())


def test_a_model_without_routes_is_refused() -> None:
    with refused(ValueError):
        trace(PlainCNN(num_classes=2, image_size=32).eval(), torch.rand(1, 1, 32, 32))


class Doubled(ParseCaps):
    """Something happens between two cells that the recorder does not know."""

    def classify(self, image: torch.Tensor, reconstruct: bool) -> Output:
        u = self.primary(self.initial(image))
        for block in self.blocks:
            u = 2 * block(u)
        return Output(self.classes(self.norm(u))[0])


def test_a_chain_with_a_gap_is_refused() -> None:
    model = Doubled.from_preset("tiny", num_classes=2).eval()
    with refused(ValueError):
        trace(model, torch.rand(1, 1, 32, 32))


class TestRecorder:
    def test_it_changes_nothing_and_leaves_nothing(self) -> None:
        model = small_model()
        image = random_image(model)
        before = model(image)
        with record_stages(model.blocks[2]) as stages:
            during = model(image)
            model(image[:1])
        with pytest.raises(RuntimeError, match="on purpose"), record_stages(model.blocks[2]):
            raise RuntimeError("on purpose")
        assert torch.equal(before.logits, during.logits)
        assert [stage.module for stage in stages] == [*model.blocks[2]] * 2
        assert [stage.ways[0].total.shape[0] for stage in stages] == [2, 2, 1, 1]
        assert sum(len(module._forward_hooks) for module in model.modules()) == 0

    def test_the_gradient_at_a_way_is_that_of_the_way_alone(self) -> None:
        """A residual path passes its children, which the routing uses as well."""
        model = small_model()
        with record_stages([model.blocks[2][1]]) as stages:
            output = model(random_image(model))
        cell = stages[0]
        kept = cell.ways[-1]
        assert kept.way.name == "residual"
        by_way, whole = torch.autograd.grad(output.logits.sum(), [kept.total, cell.given])
        assert not torch.allclose(by_way, whole)
