"""gather_windows against torch's own unfold, with gradients, on every geometry the network uses."""

import pytest
import torch
from torch.nn import functional as F

from parsecaps.functional import gather_windows

# width, side, stride, padding: halving even and odd grids, and keeping a grid
GEOMETRIES = [(6, 4, 2, (1, 1)), (7, 4, 2, (1, 2)), (5, 3, 1, (1, 1)), (8, 6, 2, (2, 2)), (4, 2, 2, (0, 0))]


def unfolded(u: torch.Tensor, width: int, side: int, stride: int, padding: tuple[int, int]) -> torch.Tensor:
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
        def forward(self, u: torch.Tensor) -> torch.Tensor:
            return gather_windows(u, 6, 4, 2, (1, 1))

    u = torch.randn(2, 36, 3)
    expected = Windows()(u)
    torch.testing.assert_close(torch.compile(Windows(), fullgraph=True, backend="aot_eager")(u), expected)
    torch.testing.assert_close(torch.export.export(Windows(), (u,)).module()(u), expected)
