"""PConvCaps: depthwise 3x3 on the grid, normalisation, pointwise map."""

import pytest
import torch

from parsecaps.nn import PConvCaps
from parsecaps.nn.capsules import Normalisation
from tests.messages import refused


def pconv(
    width: int, stride: int, in_dim: int = 3, out_dim: int = 5, normalisation: Normalisation = "layer"
) -> PConvCaps:
    return PConvCaps(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, normalisation=normalisation)


@pytest.mark.parametrize("normalisation", ["batch", "layer"])
@pytest.mark.parametrize(("width", "stride", "parents"), [(6, 2, 9), (7, 2, 16), (5, 1, 25), (1, 2, 1)])
def test_shapes(width: int, stride: int, parents: int, normalisation: Normalisation) -> None:
    u_hat = pconv(width, stride, normalisation=normalisation)(torch.randn(2, width**2, 3))
    assert u_hat.shape == (2, parents, 5)


@pytest.mark.parametrize(("width", "stride"), [(5, 1), (6, 2), (7, 2)])
def test_equals_the_loop(width: int, stride: int) -> None:
    layer = pconv(width, stride)
    u = torch.randn(1, width**2, 3)
    rows = []
    for y in range(0, width, stride):
        for x in range(0, width, stride):
            total = torch.zeros(3)
            for dy in (-1, 0, 1):
                for dx in (-1, 0, 1):
                    if 0 <= y + dy < width and 0 <= x + dx < width:
                        kernel = layer.depthwise.weight[:, 0, dy + 1, dx + 1]
                        total = total + kernel * u[0, (y + dy) * width + x + dx]
            rows.append(layer.pointwise(layer.norm(total)))
    torch.testing.assert_close(layer(u)[0], torch.stack(rows))


def test_batch_normalisation_is_over_the_batch_and_all_capsules() -> None:
    layer = pconv(4, 1, normalisation="batch").train()
    u = torch.randn(3, 16, 3) * 7 + 2
    normed = layer.norm(u)
    torch.testing.assert_close(normed.mean((0, 1)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normed.var((0, 1), unbiased=False), torch.ones(3), atol=1e-3, rtol=0)


def test_unknown_normalisation() -> None:
    with refused(ValueError):
        pconv(4, 1, normalisation="group")  # type: ignore[arg-type]
