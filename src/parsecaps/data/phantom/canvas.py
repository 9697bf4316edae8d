"""Where things are drawn: relative coordinates, so that a scene is the same at every size, and smooth random fields."""

from functools import lru_cache

import numpy as np

from parsecaps.data.phantom.randomness import Floats, Randomness

_SPLINE_STD = 0.277  # of a field of uniform coefficients in [-1, 1], over position


class Canvas:
    """A square of `size` pixels over [-1, 1] x [-1, 1].

    Shapes:
        - x: (1, 1, size), y: (1, size, 1), the centres of the pixels
        - pixel: the width of a pixel
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.pixel = 2.0 / size
        centres = (np.arange(size, dtype=np.float32) + 0.5) * self.pixel - 1
        self.x = centres[None, None, :]
        self.y = centres[None, :, None]

    def field(self, random: Randomness, name: str, cells: int) -> Floats:
        """(N, size, size): smooth chance with features of 1 / `cells` of the width; mean 0, standard deviation 1."""
        basis = _spline_basis(self.size, cells)
        table = random.between(name, -1 / _SPLINE_STD, 1 / _SPLINE_STD, cells + 3, cells + 3)
        values: Floats = np.matmul(np.matmul(basis, table), basis.T)
        return values


def smoothstep(value: Floats, low: float | Floats, high: float | Floats) -> Floats:
    """0 below `low`, 1 above `high`, smooth between."""
    t = np.clip((value - low) / (high - low), 0, 1)
    result: Floats = t * t * (3 - 2 * t)
    return result


def column(values: Floats) -> Floats:
    """(N,) -> (N, 1, 1): a number per image, ready for its pixels."""
    return values[:, None, None]


@lru_cache(maxsize=32)
def _spline_basis(size: int, cells: int) -> Floats:
    """(size, cells + 3): the weight of every coefficient of a cubic B-spline at every pixel centre."""
    position = (np.arange(size) + 0.5) / size * cells
    cell = position.astype(np.int64)
    t = position - cell
    weights = ((1 - t) ** 3, 3 * t**3 - 6 * t**2 + 4, -3 * t**3 + 3 * t**2 + 3 * t + 1, t**3)
    basis = np.zeros((size, cells + 3), np.float32)
    for offset, weight in enumerate(weights):
        basis[np.arange(size), cell + offset] = weight / 6
    return basis
