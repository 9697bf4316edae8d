"""Where capsules lie: against the pixels that the network really looks at, and every pixel in one place."""

import pytest
import torch

from parsecaps.explain.route_maps import PrimaryGrid
from parsecaps.nn.capsules import InitialBlock


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
