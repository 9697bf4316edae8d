"""One forward pass gives every route, and from the routes the pass can be made again."""

import pytest
import torch
from torch import nn

from parsecaps.explain.trace import trace
from parsecaps.functional import squash
from parsecaps.models import ParseCaps, PlainCNN
from parsecaps.nn import record_couplings
from parsecaps.nn.recorder import record_stages
from tests.explain.small_models import KINDS, random_image, small_model


@pytest.mark.parametrize("kind", KINDS)
def test_the_routes_make_the_parents_again(kind: str) -> None:
    model = small_model(**KINDS[kind])
    routes = trace(model, random_image(model))
    for cell in routes.cells:
        form = cell.cell.routing.sparse.squash_form
        parents = squash(cell.routed, form)
        if cell.axial is not None:
            parents = parents + squash(cell.axial.routed, form)
        if cell.residual:
            parents = parents + cell.children
        z = cell.cell.norm(parents)
        torch.testing.assert_close(z + cell.cell.mlp(z), cell.parents)


@pytest.mark.parametrize("kind", KINDS)
def test_every_sum_is_over_children(kind: str) -> None:
    model = small_model(**KINDS[kind])
    cell = trace(model, random_image(model)).cells[0]
    parent = 5
    by_hand = sum(
        cell.coupling[0, head, parent, child] * cell.values[0, head, child]
        for child in range(cell.children.shape[1])
        for head in range(cell.heads)
    )
    torch.testing.assert_close(cell.routed[0, parent], by_hand)
    if cell.axial is not None:
        torch.testing.assert_close(cell.axial.mean.sum(1), torch.ones_like(cell.axial.mean[:, 0]))
        torch.testing.assert_close(cell.axial.routed, cell.axial.mean @ cell.axial.values)


def test_the_couplings_are_those_of_the_model() -> None:
    model = small_model(**KINDS["windowed"])
    image = random_image(model)
    with record_couplings(model) as couplings:
        model(image)
    routes = trace(model, image)
    sparse = [c.coupling for c in couplings if c.branch == "sparse"]
    assert model.blocks[0][0].routing.sparse.neighbourhood.windowed
    assert all(torch.equal(a.coupling, b) for a, b in zip(routes.cells, sparse, strict=True))


def test_other_leaves_climb_through_the_same_cells() -> None:
    model = small_model()
    image = random_image(model)
    first, second = trace(model, image[:1]), trace(model, image[1:])
    climbed = first.climb(second.primary)
    for one, two in zip(climbed, second.cells, strict=True):
        torch.testing.assert_close(one.coupling, two.coupling)
        torch.testing.assert_close(one.parents, two.parents)
    assert [cell.name for cell in climbed] == [cell.name for cell in second.cells]


def test_shares_add_up_to_the_heads() -> None:
    model = small_model()
    routes = trace(model, random_image(model))
    assert routes.concept_shares is not None
    assert routes.class_shares is not None
    assert model.concepts is not None
    s = routes.concept_shares.sum(2) + model.concepts.readout.bias
    torch.testing.assert_close(squash(s), routes.output.concept_capsules)
    s = routes.class_shares.sum(2) + model.classes.readout.bias
    torch.testing.assert_close(squash(s), routes.output.class_capsules)


def test_a_model_without_concepts_and_one_that_decides_by_them() -> None:
    plain = small_model(num_concepts=0)
    assert trace(plain, random_image(plain)).concept_shares is None
    by_concepts = small_model(head="bottleneck")
    assert trace(by_concepts, random_image(by_concepts)).class_shares is None


def test_a_model_in_training_is_refused() -> None:
    with pytest.raises(ValueError, match=r"training mode.*call eval\(\) first"):
        trace(small_model().train(), torch.rand(1, 1, 40, 40).double())


def test_a_model_without_routes_is_refused() -> None:
    with pytest.raises(ValueError, match="PlainCNN has no couplings"):
        trace(PlainCNN(num_classes=2, image_size=32).eval(), torch.rand(1, 1, 32, 32))


class Doubled(ParseCaps):
    """Something happens between two cells that the recorder does not know."""

    def _climb(self, image: torch.Tensor) -> torch.Tensor:
        u = self.primary(self.initial(image))
        for block in self.blocks:
            u = 2 * block(u)
        top: torch.Tensor = self.norm(u)
        return top


def test_a_chain_with_a_gap_is_refused() -> None:
    model = Doubled.from_preset("tiny", num_classes=2).eval()
    with pytest.raises(ValueError, match="no tree of cells; choose a gradient map"):
        trace(model, torch.rand(1, 1, 32, 32))


class TestRecorder:
    def test_it_changes_nothing_and_leaves_nothing(self) -> None:
        model = small_model()
        image = random_image(model)
        before = model(image)
        with record_stages(model) as stages:
            during = model(image)
        assert torch.equal(before.logits, during.logits)
        assert len(stages) == 9
        assert sum(len(module._forward_hooks) for module in model.modules()) == 0

    def test_the_hooks_go_even_if_something_fails(self) -> None:
        model = small_model()
        with pytest.raises(RuntimeError, match="on purpose"), record_stages(model):
            raise RuntimeError("on purpose")
        assert sum(len(module._forward_hooks) for module in model.modules()) == 0

    def test_two_passes_give_two_records(self) -> None:
        model = small_model()
        image = random_image(model)
        with record_stages(model) as stages:
            model(image)
            model(image[:1])
        cells = [stage for stage in stages if stage.name == "blocks.0.0"]
        assert [cell.couplings["sparse"].shape[0] for cell in cells] == [2, 1]
        assert isinstance(cells[0].module, nn.Module)
