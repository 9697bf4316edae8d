"""Where children lie: windows against a loop over the grid, and the prior against its formula."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from parsecaps.nn.locality import LocalityPrior, Neighbourhood, gather_windows
from tests.messages import refused


def place(i: int, width: int) -> tuple[int, int]:
    return divmod(i, width)


def distances(width: int, stride: int) -> Tensor:
    """(parents, children, 2): child minus parent, a parent lying in the middle of its own children."""
    parent_width = -(-width // stride)
    rows = []
    for parent in itertools.product(range(parent_width), repeat=2):
        centre = [stride * p + (stride - 1) / 2 for p in parent]
        rows.append([[y - centre[0], x - centre[1]] for y, x in itertools.product(range(width), repeat=2)])
    return torch.tensor(rows)


def allowed_by_loop(width: int, stride: int, radius: int | None) -> Tensor:
    """A parent sees its own stride x stride children, and `radius` more on each side."""
    parent_width = -(-width // stride)
    reach = width if radius is None else radius
    allowed = torch.zeros(parent_width**2, width**2, dtype=torch.bool)
    for parent, child in itertools.product(range(parent_width**2), range(width**2)):
        pairs = zip(place(parent, parent_width), place(child, width), strict=True)
        allowed[parent, child] = all(stride * p - reach <= c < stride * (p + 1) + reach for p, c in pairs)
    return allowed


def densified(neighbourhood: Neighbourhood, kept: Tensor) -> Tensor:
    """What is kept, in the form of the logits and without a batch, as (heads, parents, children)."""
    return neighbourhood.dense(kept.unsqueeze(0))[0]


@given(st.integers(1, 17), st.sampled_from([1, 2]), st.sampled_from([0, 1, 2, 3, None]), st.booleans())
def test_each_parent_sees_the_children_around_it(width: int, stride: int, radius: int | None, dense: bool) -> None:
    neighbourhood = Neighbourhood(width=width, stride=stride, radius=radius, windowed=False if dense else None)
    assert not (dense and neighbourhood.windowed)
    expected = allowed_by_loop(width, stride, radius)
    allowed = neighbourhood.allowed
    if not neighbourhood.windowed:
        allowed = allowed.reshape(1, *expected.shape)
    assert torch.equal(densified(neighbourhood, allowed.float())[0], expected.float())
    assert expected.any(0).all()  # no child is left out
    assert expected.any(1).all()


@pytest.mark.parametrize(("width", "stride", "radius"), [(16, 2, 1), (17, 2, 1), (12, 1, 1), (9, 1, 0)])
def test_windows_are_the_children_by_place(width: int, stride: int, radius: int) -> None:
    neighbourhood = Neighbourhood(width=width, stride=stride, radius=radius, windowed=None)
    assert neighbourhood.windowed
    u = torch.randn(2, width**2, 3)
    windows = neighbourhood.gather(u)
    parent_width = -(-width // stride)
    side = stride + 2 * radius
    assert windows.shape == (2, parent_width**2, side**2, 3)
    for parent, slot in itertools.product(range(parent_width**2), range(side**2)):
        (py, px), (sy, sx) = place(parent, parent_width), place(slot, side)
        y, x = stride * py - radius + sy, stride * px - radius + sx
        inside = 0 <= y < width and 0 <= x < width
        expected = u[:, y * width + x] if inside else torch.zeros(2, 3)
        assert torch.equal(windows[:, parent, slot], expected)


@pytest.mark.parametrize(
    ("width", "stride", "radius", "dense"), [(16, 2, 1, False), (16, 2, 1, True), (5, 1, 1, False), (4, 2, None, False)]
)
def test_the_prior_prefers_children_near_each_heads_spot(
    width: int, stride: int, radius: int | None, dense: bool
) -> None:
    neighbourhood = Neighbourhood(width=width, stride=stride, radius=radius, windowed=False if dense else None)
    prior = LocalityPrior(heads=3, neighbourhood=neighbourhood, preference=True, jitter=0.0)
    with torch.no_grad():
        prior.spot.normal_()
        prior.log_sharpness.normal_()
    weights = densified(neighbourhood, prior(1)[0].softmax(-1))
    relative = distances(width, stride)
    far = (relative - prior.spot.view(3, 1, 1, 2)).square().sum(-1) * prior.log_sharpness.exp().view(3, 1, 1)
    expected = (-far).masked_fill(~allowed_by_loop(width, stride, radius), -math.inf).softmax(-1)
    torch.testing.assert_close(weights, expected)


def test_without_preference_all_children_of_a_window_are_alike() -> None:
    for dense in (True, False):
        neighbourhood = Neighbourhood(width=16, stride=2, radius=1, windowed=False if dense else None)
        prior = LocalityPrior(heads=1, neighbourhood=neighbourhood, preference=False, jitter=0.0)
        assert list(prior.parameters()) == []
        logits = prior(1)
        assert set(logits.unique().tolist()) == {-math.inf, 0.0}


@pytest.mark.parametrize("dense", [True, False])
def test_jitter_moves_the_children_of_each_image_by_a_linear_map(dense: bool) -> None:
    neighbourhood = Neighbourhood(width=16, stride=2, radius=1, windowed=False if dense else None)
    prior = LocalityPrior(heads=3, neighbourhood=neighbourhood, preference=True, jitter=0.3)
    assert neighbourhood.windowed != dense
    torch.manual_seed(5)
    logits = prior(4)
    torch.manual_seed(5)
    maps = torch.eye(2) + 0.3 * torch.randn(4, 2, 2)
    relative = distances(16, 2)
    for image, found in enumerate(logits):
        far = (relative @ maps[image] - prior.spot.view(3, 1, 1, 2)).square().sum(-1)
        expected = (-far).masked_fill(~allowed_by_loop(16, 2, 1), -math.inf).softmax(-1)
        torch.testing.assert_close(densified(neighbourhood, found.softmax(-1)), expected)


def test_jitter_is_for_training_alone() -> None:
    neighbourhood = Neighbourhood(width=16, stride=2, radius=1, windowed=None)
    still, moved = (
        LocalityPrior(heads=3, neighbourhood=neighbourhood, preference=True, jitter=jitter) for jitter in (0.0, 0.3)
    )
    assert len(moved(2)) == 2
    assert not torch.equal(moved(2), moved(2))
    before = torch.get_rng_state()
    assert torch.equal(moved.eval()(2), still(2))
    assert torch.equal(torch.get_rng_state(), before)  # so that runs without it are what they were


@pytest.mark.parametrize("jitter", [-0.1, math.inf, math.nan])
def test_jitter_that_is_none(jitter: float) -> None:
    neighbourhood = Neighbourhood(width=16, stride=2, radius=1, windowed=None)
    with refused(ValueError):
        LocalityPrior(heads=1, neighbourhood=neighbourhood, preference=True, jitter=jitter)


@pytest.mark.parametrize("stride", [1, 2])
def test_the_heads_start_on_different_spots_among_their_own_children(stride: int) -> None:
    neighbourhood = Neighbourhood(width=8, stride=stride, radius=1, windowed=False)
    prior = LocalityPrior(heads=4, neighbourhood=neighbourhood, preference=True, jitter=0.0)
    assert len({tuple(spot) for spot in prior.spot.tolist()}) == 4
    assert prior.spot.abs().max() <= 1


@pytest.mark.parametrize(("width", "stride", "radius"), [(13, 2, 1), (12, 1, 1), (6, 2, 2)])
def test_kept_is_the_inverse_of_dense(width: int, stride: int, radius: int) -> None:
    hood = Neighbourhood(width=width, stride=stride, radius=radius, windowed=None)
    parents = (-(-width // stride)) ** 2
    shape = (2, parents, 3, hood.side**2) if hood.windowed else (2, 3, parents, width**2)
    c = torch.rand(shape) * hood.allowed
    assert torch.equal(hood.kept(hood.dense(c)), c)


# width, side, stride, padding: halving even and odd grids, and keeping a grid
GEOMETRIES = [(6, 4, 2, (1, 1)), (7, 4, 2, (1, 2)), (5, 3, 1, (1, 1)), (8, 6, 2, (2, 2)), (4, 2, 2, (0, 0))]


def unfolded(u: Tensor, width: int, side: int, stride: int, padding: tuple[int, int]) -> Tensor:
    grid = u.mT.reshape(u.shape[0], u.shape[2], width, width)
    columns = F.unfold(F.pad(grid, (*padding, *padding)), side, stride=stride)
    return columns.view(u.shape[0], u.shape[2], side * side, -1).permute(0, 3, 2, 1)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_agrees_with_unfold(geometry: tuple[int, int, int, tuple[int, int]]) -> None:
    u = torch.randn(2, geometry[0] ** 2, 3)
    torch.testing.assert_close(gather_windows(u, *geometry), unfolded(u, *geometry), rtol=0, atol=0)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_gradient(geometry: tuple[int, int, int, tuple[int, int]]) -> None:
    u = torch.randn(2, geometry[0] ** 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: gather_windows(x, *geometry), u)


def test_input_that_is_not_contiguous() -> None:
    u = torch.randn(2, 3, 36).mT.requires_grad_()
    windows = gather_windows(u, 6, 4, 2, (1, 1))
    torch.testing.assert_close(windows, unfolded(u, 6, 4, 2, (1, 1)))
    windows.sum().backward()
    assert u.grad is not None


def test_compiles_and_exports() -> None:
    class Windows(torch.nn.Module):
        def forward(self, u: Tensor) -> Tensor:
            return gather_windows(u, 6, 4, 2, (1, 1))

    u = torch.randn(2, 36, 3)
    expected = Windows()(u)
    torch.testing.assert_close(torch.compile(Windows(), fullgraph=True, backend="aot_eager")(u), expected)
    torch.testing.assert_close(torch.export.export(Windows(), (u,)).module()(u), expected)
