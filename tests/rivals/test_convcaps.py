"""The layers of DeepCaps against slow loops written from its equations."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.rivals.deepcaps import ConvCaps, DeconvDecoder, DeepCapsCell, Routing3D, halved

DOUBLE = torch.float64


def squashed(s: Tensor) -> Tensor:
    """The formula of Sabour et al. for one vector."""
    square = (s * s).sum()
    return square / (1 + square) * s / square.sqrt()


def routed_by_loops(layer: Routing3D, u: Tensor) -> Tensor:
    """One image (n, d): a 3D convolution over the children's numbers in a row, and the routing pair by pair."""
    width, types, dim = layer.width, layer.types, u.shape[-1]
    children = torch.zeros(types, dim, width, width, dtype=u.dtype)
    for y in range(width):
        for x in range(width):
            for t in range(types):
                children[t, :, y, x] = u[(y * width + x) * types + t]
    depth = children.reshape(1, 1, types * dim, width, width)
    kernel = layer.conv.weight.unsqueeze(1)  # (types * dim, 1, dim, 3, 3)
    votes = F.conv3d(depth, kernel, stride=(dim, 1, 1), padding=(0, 1, 1))[0]  # (types * dim, child, y, x)
    v_hat = torch.zeros(types, types, dim, width, width, dtype=u.dtype)
    for i in range(types):
        for j in range(types):
            v_hat[i, j] = votes[j * dim : (j + 1) * dim, i]
    b = torch.zeros(types, types, width, width, dtype=u.dtype)
    for _ in range(layer.iterations):
        c = torch.stack([b[i].exp() / b[i].exp().sum() for i in range(types)])  # over parent, y and x
        v = torch.zeros(types, dim, width, width, dtype=u.dtype)
        for j in range(types):
            s = sum(c[i, j] * v_hat[i, j] for i in range(types)) + layer.bias[j]
            v[j] = squashed(s)
        for i in range(types):
            for j in range(types):
                b[i, j] += (v_hat[i, j] * v[j]).sum(0)
    found = torch.zeros_like(u)
    for y in range(width):
        for x in range(width):
            for t in range(types):
                found[(y * width + x) * types + t] = v[t, :, y, x]
    return found


@pytest.mark.parametrize("iterations", [1, 3])
def test_routing_is_that_of_the_equations(iterations: int) -> None:
    layer = Routing3D(width=3, types=4, dim=2, iterations=iterations).double()
    with torch.no_grad():
        layer.conv.weight.mul_(8)  # so that the couplings are far from even
        layer.bias.add_(torch.randn_like(layer.bias))
    u = torch.randn(2, 3 * 3 * 4, 2, dtype=DOUBLE)
    expected = torch.stack([routed_by_loops(layer, each) for each in u])
    torch.testing.assert_close(layer(u), expected)


def test_a_child_shares_itself_out_over_parents_and_positions_together() -> None:
    """The same vote everywhere: the sum over all parents and positions of what one child gives is one such vote."""
    layer = Routing3D(width=3, types=2, dim=4, iterations=1)
    with torch.no_grad():
        layer.conv.weight.zero_()
        layer.conv.weight[:, :, 1, 1] = torch.eye(4).repeat(2, 1)  # each child votes for itself, for both parents
        layer.bias.zero_()
    u = torch.zeros(1, 9, 2, 4)
    u[0, :, 0, 0], u[0, :, 1, 1] = 1.0, 1.0
    v = layer(u.view(1, 18, 4)).view(9, 2, 4)
    s = 1 / 18 * torch.tensor([1.0, 1.0, 0.0, 0.0])  # of either child, 1 / (2 parents x 9 positions)
    square = 9 * (s * s).sum()
    torch.testing.assert_close(v, (square / (1 + square) * s / square.sqrt()).expand(9, 2, 4))


def test_children_are_types_and_not_stripes_of_the_map() -> None:
    """What one type says at one place reaches the votes of this child alone, and only around that place."""
    layer = Routing3D(width=5, types=3, dim=2)
    u = torch.zeros(1, 25, 3, 2)
    u[0, 2 * 5 + 1, 1] = 1.0  # y = 2, x = 1, type 1
    votes = layer.votes(u.view(1, 75, 2))[0]
    assert votes.shape == (3, 3, 2, 5, 5)
    assert votes[1, :, :, 1:4, 0:3].abs().min() > 0
    votes[1, :, :, 1:4, 0:3] = 0
    assert votes.abs().max() == 0


def test_lengths() -> None:
    layer = ConvCaps(width=6, in_types=3, in_dim=2, types=4, dim=5, stride=2)
    capsules = layer(5 * torch.randn(2, 6 * 6 * 3, 2))
    maps = layer.conv(torch.zeros(1, 6, 6, 6))
    assert capsules.shape == (2, 3 * 3 * 4, 5)
    assert maps.shape == (1, 20, 3, 3)
    lengths = capsules.norm(dim=-1)
    assert 0 < lengths.min() <= lengths.max() < 1
    routing = Routing3D(width=3, types=4, dim=5)
    whole = routing(capsules).view(2, 9, 4, 5).permute(0, 2, 1, 3).flatten(2).norm(dim=-1)
    assert 0 < whole.min() <= whole.max() < 1  # over numbers and positions, for each parent


def test_a_capsule_is_neighbouring_channels_of_the_convolution() -> None:
    layer = ConvCaps(width=4, in_types=2, in_dim=3, types=2, dim=3)
    u = torch.randn(1, 32, 3)
    maps = layer.conv(u.view(1, 4, 4, 6).permute(0, 3, 1, 2))
    for y, x, t in ((0, 3, 1), (2, 1, 0)):
        s = maps[0, 3 * t : 3 * t + 3, y, x]
        torch.testing.assert_close(layer(u)[0, (y * 4 + x) * 2 + t], squashed(s))


@pytest.mark.parametrize("width", [7, 8])
def test_a_cell_halves_the_grid_and_adds_its_skip(width: int) -> None:
    cell = DeepCapsCell(width=width, in_types=3, in_dim=1, types=2, dim=4, iterations=2)
    u = torch.randn(2, width * width * 3, 1)
    out = cell(u)
    assert out.shape == (2, 2 * 4 * 4, 4)
    a = cell.reduce(u)
    torch.testing.assert_close(out, cell.second(cell.first(a)) + cell.skip(a))
    assert cell.width == halved(width) == 4


def test_iterations_must_be_there() -> None:
    with pytest.raises(ValueError, match=r"iterations is 0; give at least 1"):
        Routing3D(width=3, types=2, dim=2, iterations=0)


@pytest.mark.parametrize(("size", "width"), [(28, 7), (32, 8), (45, 6), (64, 8), (100, 7), (128, 8)])
def test_the_decoder_makes_a_picture_of_any_size(size: int, width: int) -> None:
    decoder = DeconvDecoder(dim=5, channels=2, image_size=size)
    picture = decoder(torch.randn(3, 2, 5), torch.tensor([0, 1, 1]))
    assert decoder.width == width
    assert picture.shape == (3, 2, size, size)
    assert picture.min() >= 0
