"""Dots and globules: small round bodies of pigment.

Regular: round, brown, alike, evenly spread over the lesion. Irregular: of any size, shape and shade (brown, black, blue
grey), crowded together in places.
"""

from typing import NamedTuple

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, smoothstep
from parsecaps.data.phantom.randomness import Flags, Floats, Randomness
from parsecaps.data.phantom.shapes import Lesion

_REGULAR = 36
_IRREGULAR = 26
_CLUSTERS = 3
_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))


class Globules(NamedTuple):
    """K globules in each of N lesions; all fields (N, K)."""

    x: Floats
    y: Floats
    radius: Floats
    stretch: Floats
    turn: Floats
    brown: Floats
    blue: Floats


def regular_globules(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats, Flags]:
    """Brown and blue pigment to add, and the pixels of the globules, each (N, size, size)."""
    k = np.arange(_REGULAR, dtype=np.float32)
    turn = random.between("spiral start", 0, 2 * np.pi)[:, None] + k * np.float32(_GOLDEN_ANGLE)
    spacing = random.between("regular spacing", 0.105, 0.125)[:, None]
    out = np.sqrt(k + 0.5) * spacing / on.outline.radius[:, None]  # a sunflower's seeds: evenly spread
    x, y = _place(on, turn, out + random.between("regular shift", -0.02, 0.02, _REGULAR))
    one = np.ones_like(x)
    radius = random.between("regular radius", 0.036, 0.043)[:, None] * random.between("alike", 0.93, 1.07, _REGULAR)
    brown = random.between("regular brown", 0.9, 1.15)[:, None] * (out < 0.9)
    return _splat(canvas, Globules(x, y, radius, one, one, brown, 0 * one))


def irregular_globules(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats, Flags]:
    """Brown and blue pigment to add, and the pixels of the globules, each (N, size, size)."""
    cluster = np.arange(_IRREGULAR) % _CLUSTERS
    turn = random.between("cluster turn", 0, 2 * np.pi, _CLUSTERS)[:, cluster]
    turn = turn + random.between("turn in cluster", -0.7, 0.7, _IRREGULAR)
    out = random.between("cluster distance", 0.3, 0.7, _CLUSTERS)[:, cluster]
    out = np.clip(out + random.between("distance in cluster", -0.3, 0.3, _IRREGULAR), 0.05, 0.92)
    x, y = _place(on, turn, out)
    kept = random.uniform("kept", _IRREGULAR) < random.between("crowd", 0.55, 1.0)[:, None]
    kind = random.uniform("kind of globule", _IRREGULAR)
    shade = random.between("irregular shade", 0.7, 1.7, _IRREGULAR) * kept
    blue_grey = kind < 0.25
    globules = Globules(
        x=x,
        y=y,
        radius=0.022 + 0.062 * random.uniform("irregular radius", _IRREGULAR) ** 2,
        stretch=random.between("stretch", 1.0, 1.35, _IRREGULAR),
        turn=random.between("globule turn", 0, np.pi, _IRREGULAR),
        brown=shade * np.where(blue_grey, np.float32(0.1), np.float32(1)),
        blue=shade * np.where(blue_grey, np.float32(0.6), np.where(kind > 0.8, np.float32(0.5), np.float32(0))),
    )
    return _splat(canvas, globules)


def _place(on: Lesion, turn: Floats, out: Floats) -> tuple[Floats, Floats]:
    """The points (N, K) in these directions, at these shares of the way from the centre to the border."""
    c, s = np.cos(turn), np.sin(turn)
    distance = on.outline.border(c, s) * out
    return on.outline.centre_x[:, None] + c * distance, on.outline.centre_y[:, None] + s * distance


def _splat(canvas: Canvas, globules: Globules) -> tuple[Floats, Floats, Flags]:
    """Draw each globule within a window of its own."""
    n, count = globules.x.shape
    soft = max(0.018, 0.5 * canvas.pixel)
    brown, blue, solid = (np.zeros((n, canvas.size, canvas.size), np.float32) for _ in range(3))
    image = np.arange(n)[:, None, None]
    for k in range(count):
        x, y, radius, stretch, turn, brown_k, blue_k = (field[:, k, None, None] for field in globules)
        reach = int(np.ceil((radius * stretch + soft).max() / canvas.pixel)) + 1
        window = np.arange(-reach, reach + 1)
        columns = np.clip(((x + 1) / canvas.pixel).astype(np.int64) + window[None, None, :], 0, canvas.size - 1)
        rows = np.clip(((y + 1) / canvas.pixel).astype(np.int64) + window[None, :, None], 0, canvas.size - 1)
        dx, dy = canvas.x[0, 0][columns] - x, canvas.y[0, :, 0][rows] - y
        c, s = np.cos(turn), np.sin(turn)
        along, across = (dx * c + dy * s) / stretch, (dy * c - dx * s) * stretch
        shape = 1 - smoothstep(np.sqrt(along * along + across * across), radius - soft, radius + soft)
        where = (image, rows, columns)
        brown[where] = np.maximum(brown[where], shape * brown_k)
        blue[where] = np.maximum(blue[where], shape * blue_k)
        solid[where] = np.maximum(solid[where], shape * (brown_k > 0))
    return brown, blue, solid > 0.2
