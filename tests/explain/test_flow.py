"""Relevance along fixed couplings: exact sums for the secant, the true gradient for the tangent."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.explain.flow import flow, relevance
from parsecaps.explain.targets import About, measure, secant
from parsecaps.explain.trace import CellRoutes, trace
from parsecaps.nn import replace_couplings
from parsecaps.nn.recorder import record_stages
from tests.explain.small_models import KINDS, random_image, small_model


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("about", ["concepts", "classes"])
def test_top_capsules_and_the_bias_add_up(kind: str, about: About) -> None:
    model = small_model(**KINDS[kind])
    routes = trace(model, random_image(model))
    direction = secant(routes, about)
    explained = relevance(direction, routes.top).sum(-1)
    truth = measure(routes, routes.top, about)
    assert torch.equal(truth, routes.output.logits if about == "classes" else routes.output.presence)

    def constant(readout: torch.nn.Module, capsules: Tensor) -> Tensor:
        towards = F.normalize(capsules, dim=-1)
        s = readout.over_capsules @ (routes.top @ readout.over_dim) + readout.bias
        return (towards * readout.bias).sum(-1) * capsules.norm(dim=-1) / s.norm(dim=-1)

    if about == "classes" and routes.class_shares is not None:
        rest = model.classes.scale * constant(model.classes.readout, routes.output.class_capsules)
    else:
        rest = constant(model.concepts.readout, routes.output.concept_capsules)
        if about == "classes":
            rest = rest @ model.classes.weight.T + model.classes.bias
    torch.testing.assert_close(explained + rest, truth, rtol=1e-6, atol=1e-6)


def edges_one_by_one(cell: CellRoutes, routed: Tensor, mixed: Tensor | None, kept: Tensor | None, child: int) -> float:
    """What one child adds to all parents along given directions, by loops over parents and heads."""
    total = 0.0
    for parent in range(cell.parents.shape[1]):
        for head in range(cell.heads):
            total += float(cell.coupling[0, head, parent, child] * routed[parent] @ cell.values[0, head, child])
        if mixed is not None and cell.axial is not None:
            total += float(cell.axial.mean[parent, child] * mixed[parent] @ cell.axial.values[0, child])
    return total + (float(kept[child] @ cell.children[0, child]) if kept is not None else 0.0)


@pytest.mark.parametrize(
    "kind", ["default", "windowed", "over parents", "no axial", "odd size", "layer norm", "whole values"]
)
def test_a_childs_relevance_is_the_sum_over_its_routes(kind: str) -> None:
    model = small_model(**KINDS[kind])
    routes = trace(model, random_image(model, 1))
    for cell, found in zip(routes.cells, flow(routes, "concepts", "secant"), strict=True):
        whole = relevance(found.children, cell.children)
        mixed, kept = (None if way is None else way[0, 1] for way in (found.mixed, found.kept))
        child = cell.children.shape[1] // 2
        by_hand = edges_one_by_one(cell, found.routed[0, 1], mixed, kept, child)
        assert whole[0, 1, child].item() == pytest.approx(by_hand, rel=1e-9, abs=1e-12)


def test_the_secant_accounts_for_everything_but_the_biases() -> None:
    """From the parents of a cell to its children: what is missing is what the biases add, computed by hand."""
    model = small_model()
    routes = trace(model, random_image(model))
    flows = flow(routes, "concepts", "secant")
    for i, cell in enumerate(routes.cells[:-1]):
        at_parents = flows[i + 1].children
        norm, first, gelu, last = cell.cell.norm, cell.cell.mlp[0], cell.cell.mlp[1], cell.cell.mlp[2]
        z_bias = norm.bias - norm.running_mean * norm.weight / torch.sqrt(norm.running_var + norm.eps)
        routed = cell.cell.routing(cell.children)
        z = norm(routed + cell.children if cell.residual else routed)
        y = first(z)
        gate = gelu(y) / y
        bias = z_bias + last((z_bias @ first.weight.T + first.bias) * gate)
        constant = torch.einsum("bknd,bnd->bk", at_parents, bias)
        above = relevance(at_parents, cell.parents).sum(-1)
        below = relevance(flows[i].children, cell.children).sum(-1)
        torch.testing.assert_close(below + constant, above)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("about", ["concepts", "classes"])
def test_the_tangent_is_the_gradient_with_the_couplings_kept(kind: str, about: About) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    found = flow(trace(model, image), about, "tangent")[0].children
    with record_stages(model) as stages, replace_couplings(model, lambda module, c: c.detach()):
        output = model(image)
    primary = stages[1].outcome
    values = output.logits if about == "classes" else output.presence
    for index in range(values.shape[1]):
        gradient = torch.autograd.grad(values[:, index].sum(), primary, retain_graph=True)[0]
        torch.testing.assert_close(found[:, index], gradient)


def test_a_model_without_concepts_says_so() -> None:
    model = small_model(num_concepts=0)
    routes = trace(model, random_image(model))
    with pytest.raises(ValueError, match="no concepts to explain; ask for its classes"):
        flow(routes, "concepts", "secant")
    assert flow(routes, "classes", "secant")[0].children.shape[1] == 2
