"""Maps along the routes: sums, known places, and the same answer alone or in a batch."""

import pytest
import torch

from parsecaps.explain.path import path_relevance
from parsecaps.explain.pixels import focus, magnify, pixel_contributions, smooth
from parsecaps.explain.places import Places
from parsecaps.explain.route_maps import Weight, class_maps, concept_maps, primary_relevance
from parsecaps.explain.targets import secant
from parsecaps.explain.trace import trace
from parsecaps.models import ParseCaps
from tests.explain.small_models import KINDS, random_image, small_model

WEIGHTS: list[Weight] = ["path", "contribution", "gradient", "activity"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_maps(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    size = model.image_size
    for weight in WEIGHTS:
        maps = concept_maps(model, image, weight=weight)
        assert maps.shape == (2, 3, size, size)
        assert maps.min() >= 0
        assert maps.isfinite().all()
    assert class_maps(model, image).shape == (2, 2, size, size)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_an_image_has_the_same_map_alone_and_in_a_batch(weight: Weight) -> None:
    model = small_model()
    image = random_image(model, 9)  # more than are done at once
    together = concept_maps(model, image, weight=weight)
    torch.testing.assert_close(together[8:], concept_maps(model, image[8:], weight=weight))


def test_a_signed_map_sums_to_what_the_image_changed() -> None:
    model = small_model()
    image = random_image(model)
    found = path_relevance(trace(model, image), "concepts")
    signed = concept_maps(model, image, signed=True)
    torch.testing.assert_close(signed.sum((2, 3)), found.primary.sum(-1))
    positive = concept_maps(model, image)
    torch.testing.assert_close(positive.sum((2, 3)), found.primary.clamp_min(0).sum(-1))


def test_nothing_is_found_where_nothing_is() -> None:
    """A bright patch on an empty ground, and couplings that know only places: relevance lies around the patch."""
    model = small_model(content=False, axial=False, image_size=32, grid_width=16)
    image = torch.full((1, 1, 32, 32), 0.2, dtype=torch.float64)
    image[:, :, 20:24, 4:8] = 0.9
    reach = 8  # of four convolutions, of which the first halves the grid
    for weight in ("path", "contribution", "gradient"):
        routes = trace(model, image)
        found, _ = primary_relevance(routes, "concepts", weight)
        near = torch.zeros(16, 16, dtype=torch.bool)
        near[(20 - reach) // 2 : (24 + reach) // 2, : (8 + reach) // 2] = True
        assert found.abs().amax(1)[0].view(16, 16)[~near].max() == 0
        assert found.abs().max() > 0
        maps = concept_maps(model, image, weight=weight)
        outside = maps.clone()
        outside[:, :, 20:24, 4:8] = 0
        assert outside.max() == 0  # the other pixels are as neutral as can be
        assert maps.max() > 0


def test_known_routes() -> None:
    """Two children, one of which alone is coupled: all relevance is its own, whatever the other holds."""
    model = small_model(content=False, axial=False, cells=(1, 1, 1), image_size=32, grid_width=16)
    with torch.no_grad():
        for block in model.blocks:
            prior = block[0].routing.sparse.prior
            prior.spot.copy_(torch.tensor([-0.5, 0.5]))  # the upper right of a parent's four own children
            prior.log_sharpness.fill_(5.0)  # and no other
    found, _ = primary_relevance(trace(model, random_image(model)), "concepts", "contribution")
    grid = found.view(2, 3, 16, 16)
    chosen = torch.zeros(16, 16, dtype=torch.bool)
    chosen[::8, 7::8] = True  # upper right of the upper right of the upper right
    assert grid[:, :, ~chosen].abs().max() == 0
    assert grid[:, :, chosen].abs().min() > 0


def test_activity_by_loops() -> None:
    model = small_model()
    routes = trace(model, random_image(model, 1))
    found, direction = primary_relevance(routes, "concepts", "activity")
    assert direction is None
    top = secant(routes, "concepts")[0, 0].detach()
    share = [max(float(top[n] @ routes.top[0, n]), 0.0) for n in range(len(top))]
    total = sum(share)
    for cell in reversed(routes.cells):
        below = [0.0] * cell.children.shape[1]
        for parent, amount in enumerate(share):
            lengths = []
            for child in range(len(below)):
                given = sum(
                    float(cell.coupling[0, h, parent, child] * cell.values[0, h, child].norm())
                    for h in range(cell.heads)
                )
                if cell.axial is not None:
                    given += float(cell.axial.mean[parent, child] * cell.axial.values[0, child].norm())
                if cell.residual and parent == child:
                    given += float(cell.children[0, child].norm())
                lengths.append(given)
            for child, given in enumerate(lengths):
                below[child] += amount * given / sum(lengths)
        share = below
    assert sum(share) == pytest.approx(total)
    assert found[0, 0].tolist() == pytest.approx(share)


def test_pixels_by_finite_differences() -> None:
    """What pixels contribute is the slope of the primary capsules along the direction, at two points of the way."""
    model = small_model()
    routes = trace(model, random_image(model, 1))
    direction = path_relevance(routes, "concepts").direction
    found = pixel_contributions(routes, direction)
    start = routes.image.flatten(2).median(2).values[..., None, None].expand_as(routes.image)
    row, column, index = 17, 13, 2
    slopes = []
    for part in (0.25, 0.75):
        values = []
        for nudge in (1e-6, -1e-6):
            image = start + part * (routes.image - start)
            image[0, 0, row, column] += nudge
            values.append((routes.leaves(image) * direction[:, index]).sum())
        slopes.append((values[0] - values[1]) / 2e-6)
    by_hand = (slopes[0] + slopes[1]) / 2 * (routes.image - start)[0, 0, row, column]
    assert found[0, index, row, column].item() == pytest.approx(by_hand.item(), rel=1e-4)


def test_focus() -> None:
    places = Places(first=0.5, step=2, width=2, size=4)
    relevance = torch.tensor([[[0.0, 3.0, 0.0, 1.0]]])  # right above, right below
    contributions = torch.zeros(1, 1, 4, 4)
    contributions[0, 0, 0, 2] = contributions[0, 0, 0, 0] = 5.0
    found = focus(relevance, contributions, places)
    assert found.sum().item() == pytest.approx(4.0)
    assert found[0, 0, 0, 2].item() == pytest.approx(4.0)  # the other pixel's place has no relevance
    torch.testing.assert_close(
        focus(relevance, torch.zeros(1, 1, 4, 4), places),
        magnify(relevance, places) * 4 / magnify(relevance, places).sum(),
    )
    assert focus(torch.zeros(1, 1, 4), contributions, places).sum() == 0


def test_smooth_is_no_wider_than_a_step() -> None:
    dot = torch.zeros(1, 1, 9, 9)
    dot[0, 0, 4, 4] = 1
    widths = [int((smooth(dot, step) > 0).any(2).sum()) for step in (1, 2, 3, 4, 5, 8)]
    assert widths == [1, 1, 1, 3, 3, 7]
    assert smooth(dot, 4)[0, 0, 3:6, 3:6].flatten().tolist() == pytest.approx([1 / 9] * 9)
    corner = torch.zeros(1, 1, 9, 9)
    corner[0, 0, 0, 0] = 1
    assert smooth(corner, 8).sum().item() == pytest.approx(1)


def test_what_cannot_be_explained_says_so() -> None:
    model = small_model(num_concepts=0)
    image = random_image(model)
    for weight in WEIGHTS:
        with pytest.raises(ValueError, match="no concepts to explain; ask for its classes"):
            concept_maps(model, image, weight=weight)
        assert class_maps(model, image, weight=weight).shape == (2, 2, 40, 40)
    with pytest.raises(ValueError, match="weight is 'lrp'; choose one of path, contribution, gradient, activity"):
        concept_maps(small_model(), image, weight="lrp")  # type: ignore[arg-type]


def test_the_papers_preset() -> None:
    torch.manual_seed(0)
    model = ParseCaps.from_preset("digits-paper", num_classes=3).eval()
    maps = concept_maps(model, torch.rand(1, 1, 28, 28))
    assert maps.shape == (1, 8, 28, 28)
    assert maps.isfinite().all()
