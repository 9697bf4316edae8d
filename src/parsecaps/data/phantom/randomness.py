"""Random numbers that depend on what they are for, not on what was drawn before.

Every number is a hash of (seed, kind of thing, its id, the name of the quantity, position). So image 7 gets the same
numbers alone and in any batch, and asking for one quantity more changes no other.
"""

import zlib

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_SHIFTS = (np.uint64(30), np.uint64(27), np.uint64(31))


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
