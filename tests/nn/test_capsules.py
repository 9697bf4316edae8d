"""Primary capsules are the positions of the feature map, row by row."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm
from parsecaps.nn import InitialBlock, PrimaryCaps
from parsecaps.nn.capsules import num_halvings
from tests.messages import refused


@pytest.mark.parametrize("form", ["exponential", "quadratic"])
def test_one_capsule_per_position(form: SquashForm) -> None:
    primary = PrimaryCaps(in_channels=3, dim=4, squash_form=form).eval()
    features = torch.randn(2, 3, 5, 5)
    u = primary(features)
    assert u.shape == (2, 25, 4)
    assert u.norm(dim=-1).max() < 1
    s = primary.norm(primary.project(features))
    torch.testing.assert_close(u[:, 5 * 3 + 1], squash(s[:, :, 3, 1], form))


def test_a_position_changes_its_own_capsule_alone() -> None:
    primary = PrimaryCaps(in_channels=3, dim=4, squash_form="exponential").eval()
    features = torch.randn(1, 3, 4, 4)
    other = features.clone()
    other[0, :, 2, 3] += 1
    assert (primary(features) != primary(other)).any(-1)[0].nonzero().flatten().tolist() == [2 * 4 + 3]


def test_gradients_are_finite_for_features_of_zero() -> None:
    primary = PrimaryCaps(in_channels=2, dim=3, squash_form="quadratic")
    features = torch.zeros(2, 2, 3, 3, requires_grad=True)
    primary(features).sum().backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def block(image_size: int, grid_width: int = 28, in_channels: int = 1) -> InitialBlock:
    return InitialBlock(in_channels=in_channels, channels=(2, 3, 3, 4), image_size=image_size, grid_width=grid_width)


@given(st.integers(28, 700), st.sampled_from([14, 28]))
def test_the_grid_of_any_size_is_near_the_target(size: int, grid_width: int) -> None:
    initial = block(size, grid_width).eval()
    features = initial(torch.rand(1, 1, size, size))
    assert features.shape == (1, 4, initial.width, initial.width)
    # within a factor of sqrt(2), and rounded up
    assert grid_width / math.sqrt(2) <= initial.width < grid_width * math.sqrt(2) + 1


@pytest.mark.parametrize(("size", "width"), [(28, 28), (56, 28), (112, 28), (224, 28), (448, 28), (896, 28)])
def test_a_multiple_of_the_target_gives_the_target(size: int, width: int) -> None:
    assert block(size).width == width


def test_an_image_too_large_for_four_halvings_is_averaged_first() -> None:
    initial = block(900).eval()
    assert num_halvings(900, 28) > 4
    assert initial(torch.rand(1, 1, 900, 900)).shape[2:] == (initial.width, initial.width)


def test_it_has_four_convolutions_and_takes_colour() -> None:
    initial = block(56, in_channels=3)
    assert sum(isinstance(layer, torch.nn.Conv2d) for layer in initial.layers) == 4
    assert initial(torch.rand(2, 3, 56, 56)).shape == (2, 4, 28, 28)


def test_the_layout_of_the_image_in_memory_does_not_matter() -> None:
    initial = block(56, in_channels=3).eval()
    image = torch.rand(2, 3, 56, 56)
    other = image.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(initial(image), initial(other))
    torch.testing.assert_close(initial(image.mT), initial(image.mT.contiguous()))


def test_wrong_number_of_channels() -> None:
    with refused(ValueError):
        InitialBlock(in_channels=1, channels=(2, 3, 3), image_size=28, grid_width=28)


def test_what_is_usual_at_a_place_says_nothing() -> None:
    """In training the mean capsule of each place is learned; in answers it is subtracted, so it becomes 0."""
    primary = PrimaryCaps(in_channels=3, dim=4, squash_form="exponential", places=25)
    usual, images = torch.randn(1, 3, 5, 5), torch.randn(64, 3, 5, 5)
    for _ in range(200):
        primary(usual + 0.1 * images)
    primary.eval()
    with torch.no_grad():
        assert primary(usual).norm(dim=-1).max() < 0.05
        assert primary(usual + images).norm(dim=-1).mean() > 0.2
        assert PrimaryCaps(in_channels=3, dim=4, squash_form="exponential").eval()(usual).norm(dim=-1).max() > 0.2
    before = primary.usual.clone()
    primary(usual + images)
    assert torch.equal(primary.usual, before)
