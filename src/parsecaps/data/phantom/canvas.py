"""Where things are drawn: random numbers for each image, relative coordinates, and smooth random fields.

A random number is a hash of (seed, kind of thing, its id, the name of the quantity, position): image 7 gets the same
numbers alone and in any batch. Coordinates are relative, so that a scene is the same at every size.
"""

import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))
_SPLINE_STD = 0.277  # of a field of uniform coefficients in [-1, 1], over position


class Randomness:
    """Uniform numbers for each of N things (images, patients) that are known by their ids.

    >>> some, one = Randomness(0, "image", np.array([3, 4, 5])), Randomness(0, "image", np.array([4]))
    >>> bool((some.uniform("angle", 2)[1] == one.uniform("angle", 2)[0]).all())
    True
    """

    def __init__(self, seed: int, kind: str, ids: Integers) -> None:
        start = np.array([seed % 2**64], np.uint64) * _GOLDEN + _name(kind)
        self.count = len(ids)
        self._keys = _mix(_mix(start) ^ (ids.astype(np.uint64) * _GOLDEN + np.uint64(1)))

    def uniform(self, name: str, *shape: int) -> Floats:
        """(N, *shape) in [0, 1)."""
        count = int(np.prod(shape, dtype=np.int64))
        counter = np.arange(1, count + 1, dtype=np.uint64) * _GOLDEN
        keys = _mix(self._keys ^ _name(name))
        bits = _mix(keys[:, None] + counter) >> np.uint64(40)  # 24 bits: exact in float32
        return (bits.astype(np.float32) * np.float32(2.0**-24)).reshape(len(keys), *shape)

    def between(self, name: str, low: float, high: float, *shape: int) -> Floats:
        """(N, *shape) in [low, high)."""
        return low + (high - low) * self.uniform(name, *shape)


def _name(name: str) -> np.uint64:
    return np.uint64(zlib.crc32(name.encode()) << 16)


def _mix(bits: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64: every bit of the result depends on every bit given."""
    bits = (bits ^ (bits >> _SHIFTS[0])) * _MULTIPLIERS[0]
    bits = (bits ^ (bits >> _SHIFTS[1])) * _MULTIPLIERS[1]
    return bits ^ (bits >> _SHIFTS[2])


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
    return np.asarray(t * t * (3 - 2 * t))


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
