"""Streaks: pigmented lines that run out of the lesion like rays, some ending in a bulb.

Regular: alike and evenly all round the border. Irregular: few, of any length, width and tilt, on part of the border.
"""

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, column, smoothstep
from parsecaps.data.phantom.randomness import Flags, Floats, Integers, Randomness
from parsecaps.data.phantom.shapes import Lesion

_REGULAR = 30
_IRREGULAR = 18


def regular_streaks(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add, and the pixels of the streaks, each (N, size, size)."""
    shape = (len(on.x), _REGULAR)
    return _streaks(
        canvas,
        on,
        start=random.uniform("regular start"),
        offset=random.between("regular offset", -0.08, 0.08, _REGULAR),
        length=random.between("regular length", 0.13, 0.17)[:, None] * random.between("evenness", 0.85, 1.15, _REGULAR),
        width=np.full(shape, 0.02, np.float32),
        tilt=random.between("regular tilt", -0.02, 0.02, _REGULAR),
        strength=random.between("regular streak strength", 0.8, 1.05)[:, None] * np.ones(shape, np.float32),
        bulb=np.full(shape, 0.25, np.float32),
    )


def irregular_streaks(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add, and the pixels of the streaks, each (N, size, size)."""
    place = np.arange(_IRREGULAR)
    count = random.between("irregular count", 4, 9)[:, None]  # neighbours, with gaps
    kept = (place < count) & ((random.uniform("irregular gap", _IRREGULAR) < 0.8) | (place < 3))
    return _streaks(
        canvas,
        on,
        start=random.uniform("irregular start"),
        offset=random.between("irregular offset", -0.35, 0.35, _IRREGULAR),
        length=random.between("irregular length", 0.1, 0.3, _IRREGULAR),
        width=random.between("irregular width", 0.016, 0.042, _IRREGULAR),
        tilt=random.between("irregular tilt", -0.14, 0.14, _IRREGULAR),
        strength=random.between("irregular strength", 0.7, 1.6, _IRREGULAR) * kept,
        bulb=random.between("irregular bulb", -0.3, 0.9, _IRREGULAR),
    )


def _streaks(
    canvas: Canvas,
    on: Lesion,
    *,
    start: Floats,
    offset: Floats,
    length: Floats,
    width: Floats,
    tilt: Floats,
    strength: Floats,
    bulb: Floats,
) -> tuple[Floats, Flags]:
    """One streak in each of K equal sectors of the border (K columns of the parameters), the first at `start` turns.

    `offset` is in sectors; `tilt` is how far the tip leans aside; `bulb` swells the tip; a strength of 0 is no streak.
    """
    n, sectors = offset.shape
    turn = np.arctan2(on.y, on.x) / np.float32(2 * np.pi) + column(start)
    place = (turn - np.floor(turn)) * sectors
    sector = np.minimum(place.astype(np.int64), sectors - 1)
    place -= sector.astype(np.float32) + 0.5  # in sectors, from the middle of this one
    arc = on.distance * np.float32(2 * np.pi / sectors)  # the width of a sector at this distance
    outwards = on.distance - on.border
    image: Integers = (np.arange(n) * sectors)[:, None, None]
    pigment = np.zeros(on.x.shape, np.float32)
    solid = np.zeros(on.x.shape, np.float32)
    for step in (-1, 0, 1):
        index = image + (sector + step) % sectors
        t = outwards / length.ravel()[index]  # 0 on the border, 1 at the tip
        across = np.abs((place - step - offset.ravel()[index]) * arc - tilt.ravel()[index] * np.maximum(t, 0))
        swelling = np.maximum(1 - np.abs(t - 0.85) * 5, 0)
        half = width.ravel()[index] * (1.6 - 1.1 * np.clip(t, -0.2, 1) + bulb.ravel()[index] * swelling)
        soft = max(0.016, 0.5 * canvas.pixel)
        shape = 1 - smoothstep(across, half - soft, half + soft)
        shape *= smoothstep(t, -1.0, 0.0) * (1 - smoothstep(t, 0.6, 1.15))
        amount = strength.ravel()[index]
        pigment = np.maximum(pigment, shape * amount)
        solid = np.maximum(solid, shape * (amount > 0))
    return pigment, solid > 0.2
