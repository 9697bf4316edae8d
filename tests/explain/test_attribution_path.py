"""Along the path every cell accounts for the whole change, and each route for what it brought."""

import numpy as np
import pytest
import torch
from torch import Tensor

from parsecaps.explain.attribution_path import AttributionPath, Target, neutral_image, place_panels, trace
from parsecaps.models import ParseCaps
from parsecaps.nn.recorder import RecordedStage, record_stages
from tests.explain.small_models import KINDS, make_steep, neutral_answer, random_image, small_model
from tests.messages import refused


def path_of(model: ParseCaps, image: Tensor, panels: int = 4, refinements: int = 0) -> AttributionPath:
    return AttributionPath(trace(model, image), panels, refinements)


def test_the_neutral_picture_has_one_colour() -> None:
    image = torch.tensor([[[[0.0, 0.2], [0.2, 0.9]], [[0.5, 0.5], [0.5, 0.1]]]])
    assert neutral_image(image)[0].flatten(1).tolist() == [
        pytest.approx([0.2] * 4),
        pytest.approx([0.5] * 4),
    ]


def test_the_neutral_picture_keeps_the_bars_around_an_image() -> None:
    image = torch.rand(2, 3, 24, 24)
    image[..., :3] = image[..., -2:] = 0.0
    image[..., 5] = 0.5  # a line of one colour within the image is no border
    kept = (neutral_image(image) == image).all(1)
    assert kept[..., :3].all()
    assert kept[..., -2:].all()
    assert not kept[..., 3:-2].all(1).any()
    torch.testing.assert_close(neutral_image(image.mT), neutral_image(image).mT)
    noisy = image + 1e-6 * torch.randn(image.shape)  # less than a level of a byte: still of one colour
    torch.testing.assert_close(neutral_image(noisy), neutral_image(image), rtol=0, atol=1e-5)


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
    path = path_of(model, image, panels=16)
    target = Target("concepts", 1)
    leaves = path.leaf_attribution(target)
    torch.testing.assert_close(leaves.after, path.trace.output.presence[:, 1])
    torch.testing.assert_close(leaves.before, neutral_answer(model, image).presence[:, 1])
    sums = torch.stack([sum(way.sum((1, 2, 3)) for way in ways) for ways in dense(path, target)], 1)  # (B, cells)
    change = (leaves.after - leaves.before).unsqueeze(1)
    assert (sums - change).abs().max() < 0.01 * change.abs().max()


@pytest.mark.parametrize("kind", ["default", "bottleneck", "dynamic", "dynamic, bottleneck", "two streams"])
def test_the_leaves_account_for_the_whole_change(kind: str) -> None:
    model = small_model(**KINDS[kind])
    path = path_of(model, random_image(model), panels=16)
    for target in [*(Target("concepts", j) for j in range(3)), Target("classes", 0), Target("classes", 1)]:
        found = path.leaf_attribution(target)
        change = found.after - found.before
        torch.testing.assert_close(found.relevance.sum(-1), change, rtol=0.01, atol=0.01 * change.abs().max().item())


@pytest.mark.parametrize("kind", ["default", "windowed", "over parents", "whole values", "dynamic"])
@pytest.mark.parametrize("way", [0, -1])
def test_edges_by_loops_and_finite_differences(kind: str, way: int) -> None:
    """One panel of the path: gradients by nudging a parent, parabolas through both factors, integrated by Gauss."""
    model = small_model(**KINDS[kind])
    image = random_image(model, 1)
    path = path_of(model, image, panels=1)
    edges = dense(path, Target("concepts", 0))[-1][way]
    whole = trace(model, image)
    start = whole.leaves(neutral_image(image))
    parent = 2

    def last_cell(part: float) -> RecordedStage:
        with record_stages(cell.module for cell in whole.cells) as cells:
            whole.run_cells(start + part * (whole.layers[0] - start))
        return cells[-1]

    cells = [last_cell(part) for part in (0.0, 0.5, 1.0)]

    def presence(cell: RecordedStage, nudge: Tensor) -> float:
        def move(module: torch.nn.Module, given: object, total: Tensor) -> Tensor:
            moved = total.clone()
            moved[0, parent] += nudge
            return moved

        handle = cell.ways[way].way.register_forward_hook(move)
        try:
            return whole.read_out(cell.module(cell.given))["concepts"][0, 0].item()
        finally:
            handle.remove()

    nudges = 1e-5 * torch.eye(cells[0].outcome.shape[-1], dtype=torch.float64)
    gradients = [
        torch.tensor([(presence(cell, s) - presence(cell, -s)) / 2e-5 for s in nudges], dtype=torch.float64)
        for cell in cells
    ]

    def sent(cell: RecordedStage, gradient: Tensor) -> np.ndarray:
        direction = torch.zeros_like(cell.outcome)
        direction[0, parent] = gradient
        messages = cell.ways[way].messages
        return messages.dense(messages.along(direction))[0, :, parent].detach().numpy()

    by_hand = np.zeros_like(sent(cells[0], gradients[0]))
    parabolas = [np.poly1d(np.polyfit([0, 0.5, 1], height, 2)) for height in np.eye(3)]
    points, weights = np.polynomial.legendre.leggauss(4)
    for j, gradient in enumerate(gradients):
        for k, cell in enumerate(cells):
            at = (points + 1) / 2
            integral = (weights / 2 * parabolas[j](at) * parabolas[k].deriv()(at)).sum()
            by_hand += integral * sent(cell, gradient)
    assert np.abs(by_hand).max() > 1e-8
    np.testing.assert_allclose(edges[0, :, parent].detach(), by_hand, rtol=1e-4, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_shares_add_up_as_shipped(kind: str) -> None:
    """In every layer, for every target, whatever the network; and what is missed is what the path says is missed."""
    model = small_model(1, **KINDS[kind])
    image = random_image(model, 4)
    make_steep(model, image)
    path = AttributionPath(trace(model, image))
    for target in [*(Target("concepts", j) for j in range(3)), Target("classes", 0), Target("classes", 1)]:
        leaves = path.leaf_attribution(target)
        change = leaves.after - leaves.before
        assert change.abs().max() > 0.1  # there is something to share out
        fine = path._fine_enough(target)
        layers = [leaves.relevance.sum(-1)]
        for cell, brought in zip(fine.cells, path.route_relevance(target), strict=True):
            by_way = zip(cell.ways, brought, strict=True)
            layers.append(sum(way.messages.dense(kept).sum((1, 2, 3)) for way, kept in by_way))
        missed = (torch.stack(layers) - change).abs().amax(0)
        assert (missed <= torch.maximum(0.02 * change.abs(), torch.tensor(0.01))).all()
        torch.testing.assert_close(path.residual(target), missed / change.abs().clamp_min(0.5), rtol=1e-4, atol=1e-7)


def test_a_target_that_does_not_add_up_takes_a_finer_path() -> None:
    model, target = small_model(1), Target("classes", 0)
    image = random_image(model)
    make_steep(model, image)
    rough = path_of(model, image, panels=1)
    assert rough.residual(target).max() > 0.02
    refined = path_of(model, image, panels=1, refinements=6)
    assert refined.residual(target).max() <= 0.02
    assert refined.finer.panels == 2
    finest = path_of(model, image, panels=64).leaf_attribution(target)
    torch.testing.assert_close(refined.leaf_attribution(target).relevance, finest.relevance, rtol=0.1, atol=0.01)


def test_panels_are_short_where_the_outputs_bend() -> None:
    at = torch.linspace(0, 1, 33)
    values = torch.stack([at, (at - 0.5).clamp_min(0) * 8], 1).unsqueeze(1)  # (33, 1, 2): a straight line, and a kink
    ends = place_panels(values, 8).flatten()[::2]
    widths = ends.diff()
    assert ends[0] == 0
    assert ends[-1] == 1
    assert (widths > 0).all()
    assert widths[3:5].max() < 0.5 * widths[0]
    torch.testing.assert_close(place_panels(at.view(-1, 1, 1), 4).flatten(), torch.linspace(0, 1, 9))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_at_the_leaves_is_that_of_the_model(kind: str) -> None:
    model = small_model(**KINDS[kind])
    path = path_of(model, random_image(model), panels=1)
    for target in (Target("concepts", 2), Target("classes", 1)):
        leaves = path.leaves.detach().requires_grad_()
        value = path.trace.read_out(path.trace.run_cells(leaves))[target.about][:, target.index]
        torch.testing.assert_close(path.gradients(target)[0], torch.autograd.grad(value.sum(), leaves)[0])


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_found_at_once_are_those_found_one_by_one(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    targets = [Target("classes", 1), *(Target("concepts", j) for j in range(3)), Target("classes", 1)]
    at_once, by_one = path_of(model, image, panels=1), path_of(model, image, panels=1)
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
    with refused(ValueError):
        path.leaf_attribution(Target("concepts", 0))
    with refused(ValueError):
        path.leaf_attribution(Target("classes", 2))
