"""Maps along the routes: sums, known places, and the same answer alone or in a batch."""

import pytest
import torch

from parsecaps.explain.attribution import attribution_maps
from parsecaps.explain.attribution_path import AttributionPath, Target, trace
from parsecaps.explain.route_maps import PrimaryGrid, focus, magnify, pixel_contributions, smooth
from parsecaps.models import ParseCaps
from parsecaps.nn import ROUTINGS
from parsecaps.nn.capsules import InitialBlock
from tests.explain.small_models import KINDS, random_image, small_model
from tests.explain.toy_routing import OwnChildren, UpperRight
from tests.messages import refused

CONCEPTS = [Target("concepts", j) for j in range(3)]
CLASSES = [Target("classes", k) for k in range(2)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_has_maps(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    maps = attribution_maps(model, image, [*CLASSES, *CONCEPTS])
    assert maps.shape == (2, 5, model.image_size, model.image_size)
    assert maps.min() >= 0
    assert maps.isfinite().all()
    assert not maps.requires_grad
    assert maps.amax((2, 3)).min() > 0
    torch.testing.assert_close(maps[:, 2:], attribution_maps(model, image, CONCEPTS))
    torch.testing.assert_close(maps[:, 1:2], attribution_maps(model, image, CLASSES[1:]))


def test_an_image_has_the_same_map_alone_and_in_a_batch() -> None:
    model = small_model()
    image = random_image(model, 9)  # more than are done at once
    whole = attribution_maps(model, image, CONCEPTS)
    torch.testing.assert_close(whole[8:], attribution_maps(model, image[8:], CONCEPTS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_sums_to_what_speaks_for_the_target(kind: str) -> None:
    model = small_model(**KINDS[kind])
    image = random_image(model)
    path = AttributionPath(trace(model, image))
    for target in (CONCEPTS[1], CLASSES[0]):
        maps = attribution_maps(model, image, [target])
        found = path.leaf_attribution(target).relevance
        torch.testing.assert_close(maps.sum((2, 3))[:, 0], found.clamp_min(0).sum(-1))


def test_nothing_is_found_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bright patch on an empty ground, and couplings that know only places: relevance lies around the patch."""
    monkeypatch.setitem(ROUTINGS, "own", OwnChildren)
    model = small_model(routing="own", image_size=32, grid_width=16)
    image = torch.full((1, 1, 32, 32), 0.2, dtype=torch.float64)
    image[:, :, 20:24, 4:8] = 0.9
    reach = 8  # of four convolutions, of which the first halves the grid
    path = AttributionPath(trace(model, image))
    found = torch.stack([path.leaf_attribution(target).relevance for target in CONCEPTS], 1)
    near = torch.zeros(16, 16, dtype=torch.bool)
    near[(20 - reach) // 2 : (24 + reach) // 2, : (8 + reach) // 2] = True
    assert found.abs().amax(1)[0].view(16, 16)[~near].max() == 0
    assert found.abs().max() > 0
    maps = attribution_maps(model, image, CONCEPTS)
    outside = maps.clone()
    outside[:, :, 20:24, 4:8] = 0
    assert outside.max() == 0  # the other pixels are as neutral as can be
    assert maps.max() > 0


def test_known_routes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of four children alone is coupled: all relevance is its own, whatever the others hold."""
    monkeypatch.setitem(ROUTINGS, "upper right", UpperRight)
    model = small_model(routing="upper right", cells=(1, 1, 1), image_size=32, grid_width=16)
    path = AttributionPath(trace(model, random_image(model)))
    grid = torch.stack([path.leaf_attribution(target).relevance for target in CONCEPTS], 1).view(2, 3, 16, 16)
    chosen = torch.zeros(16, 16, dtype=torch.bool)
    chosen[::8, 7::8] = True  # upper right of the upper right of the upper right
    assert grid[:, :, ~chosen].abs().max() == 0
    assert grid[:, :, chosen].abs().min() > 0


@pytest.mark.parametrize("kind", ["default", "two streams"])
def test_pixels_by_finite_differences(kind: str) -> None:
    """What pixels contribute is the slope of the primary capsules along the direction, at two points of the way."""
    model = small_model(**KINDS[kind])
    traced = trace(model, random_image(model, 1))
    direction = AttributionPath(traced).leaf_attribution(Target("concepts", 2)).direction
    (found,) = pixel_contributions(traced, [direction])
    start = traced.image.flatten(2).median(2).values[..., None, None].expand_as(traced.image)
    row, column = 17, 13
    slopes = []
    for part in (0.25, 0.75):
        values = []
        for nudge in (1e-6, -1e-6):
            image = start + part * (traced.image - start)
            image[0, 0, row, column] += nudge
            values.append((traced.leaves(image) * direction).sum())
        slopes.append((values[0] - values[1]) / 2e-6)
    by_hand = (slopes[0] + slopes[1]) / 2 * (traced.image - start)[0, 0, row, column]
    assert found[0, row, column].item() == pytest.approx(by_hand.item(), rel=1e-4)


def test_focus() -> None:
    grid = PrimaryGrid(first=0.5, step=2, width=2, size=4)
    relevance = torch.tensor([[[0.0, 3.0, 0.0, 1.0]]])  # right above, right below
    contributions = torch.zeros(1, 1, 4, 4)
    contributions[0, 0, 0, 2] = contributions[0, 0, 0, 0] = 5.0
    found = focus(relevance, contributions, grid)
    assert found.sum().item() == pytest.approx(4.0)
    assert found[0, 0, 0, 2].item() == pytest.approx(4.0)  # the other pixel's place has no relevance
    torch.testing.assert_close(
        focus(relevance, torch.zeros(1, 1, 4, 4), grid),
        magnify(relevance, grid) * 4 / magnify(relevance, grid).sum(),
    )
    assert focus(torch.zeros(1, 1, 4), contributions, grid).sum() == 0


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
    with refused(ValueError):
        attribution_maps(model, image, CONCEPTS)
    assert attribution_maps(model, image, CLASSES).shape == (2, 2, 40, 40)


def test_the_papers_preset() -> None:
    torch.manual_seed(0)
    model = ParseCaps.from_preset("digits-paper", num_classes=3).eval()
    maps = attribution_maps(model, torch.rand(1, 1, 28, 28), [Target("concepts", j) for j in range(8)])
    assert maps.shape == (1, 8, 28, 28)
    assert maps.isfinite().all()


def block(size: int, grid_width: int) -> InitialBlock:
    torch.manual_seed(0)
    made = InitialBlock(in_channels=1, channels=(4, 4, 4, 4), image_size=size, grid_width=grid_width).double().eval()
    for layer in made.layers:
        if isinstance(layer, torch.nn.Conv2d):
            layer.weight.data.abs_()  # nothing is cut off by ReLU
    return made


@pytest.mark.parametrize(("size", "grid_width"), [(28, 28), (64, 28), (64, 16), (37, 14), (45, 14), (224, 28), (96, 3)])
def test_a_place_is_the_middle_of_what_it_sees(size: int, grid_width: int) -> None:
    initial = block(size, grid_width)
    grid = PrimaryGrid.of(initial, size)
    image = torch.rand(1, 1, size, size, dtype=torch.float64, requires_grad=True)
    index = grid.width // 2
    seen = torch.autograd.grad(initial(image)[0, :, index, index].sum(), image)[0][0, 0]
    rows = seen.abs().sum(1).nonzero()[:, 0]
    if rows[0] > 0 and rows[-1] < size - 1:
        assert grid.first + index * grid.step == (rows[0].item() + rows[-1].item() + 1) / 2


@pytest.mark.parametrize(("size", "grid_width"), [(64, 16), (37, 14), (45, 28), (33, 8), (700, 28)])
@pytest.mark.parametrize("halvings", [0, 1, 2, 3])
def test_capsules_cover_every_pixel_once(size: int, grid_width: int, halvings: int) -> None:
    grid = PrimaryGrid.of(block(size, grid_width), size)
    width = grid.width
    for _ in range(halvings):
        width = -(-width // 2)
    times = torch.zeros(size, size)
    for capsule in range(width**2):
        top, left, bottom, right = grid.bounding_box([capsule], halvings)
        times[top:bottom, left:right] += 1
    assert torch.equal(times, torch.ones(size, size))


def test_a_parents_place_is_that_of_its_own_children() -> None:
    grid = PrimaryGrid(first=0.5, step=2, width=5, size=10)
    assert grid.bounding_box([1 * 3 + 2], 1) == grid.bounding_box([2 * 5 + 4, 3 * 5 + 4], 0)


def test_interpolation_is_exact_at_the_centres_and_sums_to_one() -> None:
    across = PrimaryGrid(first=0.5, step=4, width=5, size=18).interpolation()
    torch.testing.assert_close(across.sum(0), torch.ones(18))
    assert across[:, ::4].tolist() == torch.eye(5).tolist()
    assert across[:, 2].tolist() == [0.5, 0.5, 0, 0, 0]
