"""Along the path every cell accounts for the whole change, and each route for what it brought."""

import pytest
import torch

from parsecaps.explain.path import edge_relevance, neutral, path_relevance
from parsecaps.explain.targets import measure
from parsecaps.explain.trace import trace
from tests.explain.small_models import KINDS, random_image, small_model


def test_the_neutral_picture_has_one_colour() -> None:
    image = torch.tensor([[[[0.0, 0.2], [0.2, 0.9]], [[0.5, 0.5], [0.5, 0.1]]]])
    assert neutral(image)[0].flatten(1).tolist() == [
        pytest.approx([0.2] * 4),
        pytest.approx([0.5] * 4),
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_accounts_for_the_whole_change(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    routes = trace(model, image)
    edges, before, after = edge_relevance(routes, "concepts", 1, steps=48)
    torch.testing.assert_close(after, routes.output.presence[:, 1])
    torch.testing.assert_close(before, model(neutral(image)).presence[:, 1])
    sums = torch.stack([cell.total.sum((1, 2)) for cell in edges], 1)  # (B, cells)
    change = (after - before).unsqueeze(1)
    assert (sums - change).abs().max() < 0.03 * change.abs().max()


def test_the_leaves_account_for_the_whole_change() -> None:
    model = small_model(head="bottleneck")
    routes = trace(model, random_image(model))
    for about in ("concepts", "classes"):
        found = path_relevance(routes, about, steps=64)
        change = found.after - found.before
        torch.testing.assert_close(found.primary.sum(-1), change, rtol=0.02, atol=0.02 * change.abs().max().item())


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "no axial", "whole values"])
def test_edges_by_loops_and_finite_differences(kind: str) -> None:
    """One step of the path, gradients by nudging a parent's sum, edges one by one."""
    model = small_model(**KINDS[kind])
    routes = trace(model, random_image(model, 1))
    edges, _, _ = edge_relevance(routes, "concepts", 0, steps=1)
    last = len(routes.cells) - 1
    ends = [trace(model, neutral(random_image(model, 1))), routes]
    head, parent, child = 1, 2, 3
    cells = [end.cells[last] for end in ends]

    def presence(which: int, nudge: torch.Tensor) -> float:
        cell = cells[which].cell
        routing = cells[which].routed.clone()
        routing[0, parent] += nudge
        from parsecaps.functional import squash

        parents = squash(routing, cell.routing.sparse.squash_form)
        if cells[which].axial is not None:
            parents = parents + squash(cells[which].axial.routed, cell.routing.sparse.squash_form)
        if cell.residual:
            parents = parents + cells[which].children
        z = cell.norm(parents)
        return measure(routes, routes.norm(z + cell.mlp(z)), "concepts")[0, 0].item()

    width = cells[0].values.shape[-1]
    steps = 1e-5 * torch.eye(width, dtype=torch.float64)
    gradient = sum(
        torch.tensor([(presence(which, s) - presence(which, -s)) / 2e-5 for s in steps], dtype=torch.float64) / 2
        for which in (0, 1)
    )
    sent = [cell.coupling[0, head, parent, child] * cell.values[0, head, child] for cell in cells]
    by_hand = float(gradient @ (sent[1] - sent[0]))
    assert edges[last].sparse[0, head, parent, child].item() == pytest.approx(by_hand, rel=1e-4, abs=1e-9)


def test_what_does_not_differ_brings_nothing() -> None:
    model = small_model()
    image = torch.full((1, 1, 40, 40), 0.4, dtype=torch.float64)
    found = path_relevance(trace(model, image), "concepts")
    assert found.primary.abs().max() == 0
