"""Along the path every cell accounts for the whole change, and each route for what it brought."""

import pytest
import torch
from torch import Tensor

from parsecaps.explain.attribution_path import AttributionPath
from parsecaps.explain.trace import Target, neutral_image, trace
from parsecaps.models import ParseCaps
from tests.explain.small_models import KINDS, random_image, small_model


def path_of(model: ParseCaps, image: Tensor, steps: int = 8) -> AttributionPath:
    return AttributionPath(trace(model, image), steps)


def test_the_neutral_picture_has_one_colour() -> None:
    image = torch.tensor([[[[0.0, 0.2], [0.2, 0.9]], [[0.5, 0.5], [0.5, 0.1]]]])
    assert neutral_image(image)[0].flatten(1).tolist() == [
        pytest.approx([0.2] * 4),
        pytest.approx([0.5] * 4),
    ]


def dense(path: AttributionPath, target: Target) -> list[list[Tensor]]:
    """(B, heads, n', n) for each way of each cell."""
    return [
        [way.messages.dense(kept) for way, kept in zip(cell.ways, brought, strict=True)]
        for cell, brought in zip(path.cells, path.route_relevance(target), strict=True)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_every_cell_accounts_for_the_whole_change(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    path = path_of(model, image, steps=48)
    target = Target("concepts", 1)
    leaves = path.leaf_attribution(target)
    torch.testing.assert_close(leaves.after, path.trace.output.presence[:, 1])
    torch.testing.assert_close(leaves.before, model(neutral_image(image)).presence[:, 1])
    sums = torch.stack([sum(way.sum((1, 2, 3)) for way in ways) for ways in dense(path, target)], 1)  # (B, cells)
    change = (leaves.after - leaves.before).unsqueeze(1)
    assert (sums - change).abs().max() < 0.03 * change.abs().max()


@pytest.mark.parametrize("kind", ["default", "bottleneck", "dynamic", "dynamic, bottleneck"])
def test_the_leaves_account_for_the_whole_change(kind: str) -> None:
    model = small_model(**KINDS[kind])
    path = path_of(model, random_image(model), steps=64)
    for target in [*(Target("concepts", j) for j in range(3)), Target("classes", 0), Target("classes", 1)]:
        found = path.leaf_attribution(target)
        change = found.after - found.before
        torch.testing.assert_close(found.relevance.sum(-1), change, rtol=0.02, atol=0.02 * change.abs().max().item())


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "whole values", "dynamic"])
@pytest.mark.parametrize("way", [0, -1])
def test_edges_by_loops_and_finite_differences(kind: str, way: int) -> None:
    """One step of the path; gradients by nudging a parent's sum, the change of each message along them by hand."""
    model = small_model(**KINDS[kind])
    image = random_image(model, 1)
    path = path_of(model, image, steps=1)
    edges = dense(path, Target("concepts", 0))[-1][way]
    ends = [trace(model, each) for each in (neutral_image(image), image)]
    cells = [end.cells[-1] for end in ends]
    parent = 2

    def presence(which: int, nudge: Tensor) -> float:
        def move(module: torch.nn.Module, given: object, total: Tensor) -> Tensor:
            moved = total.clone()
            moved[0, parent] += nudge
            return moved

        handle = cells[which].ways[way].way.register_forward_hook(move)
        try:
            return ends[which].read_out(cells[which].module(cells[which].given))["concepts"][0, 0].item()
        finally:
            handle.remove()

    nudges = 1e-5 * torch.eye(cells[0].outcome.shape[-1], dtype=torch.float64)
    gradient = sum(
        torch.tensor([(presence(which, s) - presence(which, -s)) / 2e-5 for s in nudges], dtype=torch.float64) / 2
        for which in (0, 1)
    )
    direction = torch.zeros_like(cells[0].outcome)
    direction[0, parent] = gradient
    sent = [cell.ways[way].messages.dense(cell.ways[way].messages.along(direction)) for cell in cells]
    by_hand = (sent[1] - sent[0])[0, :, parent]
    assert by_hand.abs().max() > 1e-8
    torch.testing.assert_close(edges[0, :, parent], by_hand, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_at_the_leaves_is_that_of_the_model(kind: str) -> None:
    model = small_model(**KINDS[kind])
    path = path_of(model, random_image(model), steps=2)
    for target in (Target("concepts", 2), Target("classes", 1)):
        leaves = path.leaves.detach().requires_grad_()
        value = path.trace.read_out(path.trace.tower(leaves))[target.about][:, target.index]
        torch.testing.assert_close(path.gradients(target)[0], torch.autograd.grad(value.sum(), leaves)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_found_at_once_are_those_found_one_by_one(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    targets = [Target("classes", 1), *(Target("concepts", j) for j in range(3)), Target("classes", 1)]
    at_once, by_one = path_of(model, image, steps=2), path_of(model, image, steps=2)
    at_once.find_gradients(targets)
    for target in targets:
        for one, two in zip(at_once.gradients(target), by_one.gradients(target), strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize("kind", ["bottleneck", "dynamic, bottleneck"])
def test_a_class_made_of_concepts_needs_no_gradient_of_its_own(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model(**KINDS[kind])
    path = path_of(model, random_image(model))
    concepts, target = [Target("concepts", j) for j in range(3)], Target("classes", 1)
    path.find_gradients(concepts)
    monkeypatch.setattr(path, "_backward", None)
    weights = model.classes.weight[1].detach()
    for found, *parts in zip(path.gradients(target), *(path.gradients(each) for each in concepts), strict=True):
        torch.testing.assert_close(found, sum(w * part for w, part in zip(weights, parts, strict=True)))
    assert path.concept_weights(target, concepts[:2]) is None
    assert path.concept_weights(concepts[0], concepts) is None


def test_what_does_not_differ_brings_nothing() -> None:
    model = small_model()
    image = torch.full((1, 1, 40, 40), 0.4, dtype=torch.float64)
    path = path_of(model, image)
    assert path.leaf_attribution(Target("concepts", 0)).relevance.abs().max() == 0
    assert max(way.abs().max() for ways in dense(path, Target("concepts", 0)) for way in ways) < 1e-12


def test_what_cannot_be_explained_says_so() -> None:
    model = small_model(num_concepts=0)
    path = path_of(model, random_image(model))
    with pytest.raises(ValueError, match="no concepts to explain; ask for its classes"):
        path.leaf_attribution(Target("concepts", 0))
    with pytest.raises(ValueError, match="2 is none of the model's classes; choose from 0 to 1"):
        path.leaf_attribution(Target("classes", 2))
