"""The structures that concepts name: pigment network, streaks, dots and globules, veil (`docs/phantom.md`)."""

from typing import NamedTuple

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, Flags, Floats, Integers, Randomness, column, smoothstep
from parsecaps.data.phantom.lesion import Lesion

_ROW = np.float32(np.sqrt(3) / 2)  # between the rows of a triangular lattice
_TILE = 32  # the lattice repeats after so many points, more than fit on a canvas
_REGULAR_STREAKS = 30
_IRREGULAR_STREAKS = 18
_REGULAR_GLOBULES = 36
_IRREGULAR_GLOBULES = 26
_CLUSTERS = 3
_GOLDEN_ANGLE = np.pi * (3 - np.sqrt(5))
_BLUE = np.array([84, 98, 132], np.float32) / 255
_WHITE = np.array([186, 192, 206], np.float32) / 255


def typical_network(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add (N, size, size), and the region that the network covers."""
    mesh = column(random.between("typical mesh", 0.115, 0.14))
    edge = _edges(canvas, random, on, "typical", mesh, bend=0.1, cells=5, jitter=0.17)
    line = _line(edge, 0.13, 0.16, canvas.pixel / mesh)
    cover = smoothstep(on.depth, 0.02, 0.4)
    strength = column(random.between("typical strength", 0.95, 1.2)) + 0.1 * canvas.field(random, "typical shade", 9)
    return strength * cover * (line - 0.25), cover > 0.15


def atypical_network(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add (N, size, size), and the region that the network covers."""
    mesh = column(random.between("atypical mesh", 0.16, 0.2))
    edge = _edges(canvas, random, on, "atypical", mesh, bend=0.4, cells=6, jitter=0.5)
    thickness = np.clip(0.22 + 0.13 * canvas.field(random, "thickness", 8), 0.06, 0.6)
    whole = smoothstep(canvas.field(random, "breaks", 11), -1.1, -0.6)
    line = _line(edge, thickness, 0.13, canvas.pixel / mesh) * whole
    strength = np.clip(1.2 + 0.4 * canvas.field(random, "unevenness", 7), 0.55, 2.2)
    direction = random.between("atypical side", 0, 2 * np.pi)
    side = (on.x * column(np.cos(direction)) + on.y * column(np.sin(direction))) / column(on.outline.radius)
    patch = side + 0.3 * canvas.field(random, "patch", 5) + column(random.between("atypical extent", 0.3, 0.75))
    cover = smoothstep(patch, 0.0, 0.3) * smoothstep(on.depth, -0.02, 0.03)
    return cover * (strength * line - 0.08), cover > 0.15


def _edges(
    canvas: Canvas, random: Randomness, on: Lesion, name: str, mesh: Floats, *, bend: float, cells: int, jitter: float
) -> Floats:
    """`_edge_distance` on a lattice of such meshes, turned and bent at random."""
    turn = random.between(f"{name} turn", 0, np.pi)
    c, s = column(np.cos(turn)) / mesh, column(np.sin(turn)) / mesh
    u = on.x * c + on.y * s + bend * canvas.field(random, f"{name} bend", cells)
    v = on.y * c - on.x * s + bend * canvas.field(random, f"{name} bend across", cells)
    return _edge_distance(u, v, jitter, random)


def _line(edge: Floats, half_width: float | Floats, soft: float, pixel: Floats) -> Floats:
    """1 on the lines, 0 in the holes, with soft edges that are never sharper than a pixel (all in meshes)."""
    soft = np.maximum(np.float32(soft), 0.5 * pixel)
    return 1 - smoothstep(edge, half_width - soft, half_width + soft)


def _edge_distance(u: Floats, v: Floats, jitter: float, random: Randomness) -> Floats:
    """(N, size, size): how far a point is from the border between the cells of its two nearest lattice points.

    The lattice is triangular, of spacing 1, each point displaced by up to `jitter`: the cells are hexagons.
    """
    n = len(u)
    name = f"lattice {jitter}"
    along = random.between(name, -jitter, jitter, _TILE * _TILE).ravel()
    across = random.between(f"{name} across", -jitter, jitter, _TILE * _TILE).ravel()
    image = (np.arange(n, dtype=np.int32) * (_TILE * _TILE))[:, None, None]
    nearest_row = np.rint(v / _ROW)
    first = np.full(u.shape, 9, np.float32)
    second = first.copy()
    for row_step in (-1, 0, 1):
        row = nearest_row + row_step
        row_index = row.astype(np.int32) & (_TILE - 1)
        shift = 0.5 * (row_index & 1).astype(np.float32)
        nearest = np.rint(u - shift)
        from_row = v - row * _ROW
        start = image + row_index * _TILE
        column_index = nearest.astype(np.int32)
        for step in (-1, 0, 1):
            index = start + ((column_index + step) & (_TILE - 1))
            du = (u - shift - nearest - step) - along[index]
            dv = from_row - across[index]
            squared = du * du + dv * dv
            second = np.minimum(second, np.maximum(first, squared))
            first = np.minimum(first, squared)
    return np.sqrt(second) - np.sqrt(first)


def regular_streaks(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add, and the pixels of the streaks, each (N, size, size)."""
    shape = (len(on.x), _REGULAR_STREAKS)
    length = random.between("regular length", 0.13, 0.17)[:, None]
    return _streaks(
        canvas,
        on,
        start=random.uniform("regular start"),
        offset=random.between("regular offset", -0.08, 0.08, _REGULAR_STREAKS),
        length=length * random.between("evenness", 0.85, 1.15, _REGULAR_STREAKS),
        width=np.full(shape, 0.02, np.float32),
        tilt=random.between("regular tilt", -0.02, 0.02, _REGULAR_STREAKS),
        strength=random.between("regular streak strength", 0.8, 1.05)[:, None] * np.ones(shape, np.float32),
        bulb=np.full(shape, 0.25, np.float32),
    )


def irregular_streaks(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add, and the pixels of the streaks, each (N, size, size)."""
    place = np.arange(_IRREGULAR_STREAKS)
    count = random.between("irregular count", 4, 9)[:, None]  # neighbours, with gaps
    kept = (place < count) & ((random.uniform("irregular gap", _IRREGULAR_STREAKS) < 0.8) | (place < 3))
    return _streaks(
        canvas,
        on,
        start=random.uniform("irregular start"),
        offset=random.between("irregular offset", -0.35, 0.35, _IRREGULAR_STREAKS),
        length=random.between("irregular length", 0.1, 0.3, _IRREGULAR_STREAKS),
        width=random.between("irregular width", 0.016, 0.042, _IRREGULAR_STREAKS),
        tilt=random.between("irregular tilt", -0.14, 0.14, _IRREGULAR_STREAKS),
        strength=random.between("irregular strength", 0.7, 1.6, _IRREGULAR_STREAKS) * kept,
        bulb=random.between("irregular bulb", -0.3, 0.9, _IRREGULAR_STREAKS),
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
    k = np.arange(_REGULAR_GLOBULES, dtype=np.float32)
    turn = random.between("spiral start", 0, 2 * np.pi)[:, None] + k * np.float32(_GOLDEN_ANGLE)
    spacing = random.between("regular spacing", 0.105, 0.125)[:, None]
    out = np.sqrt(k + 0.5) * spacing / on.outline.radius[:, None]  # a sunflower's seeds: evenly spread
    x, y = _points(on, turn, out + random.between("regular shift", -0.02, 0.02, _REGULAR_GLOBULES))
    one, alike = np.ones_like(x), random.between("alike", 0.93, 1.07, _REGULAR_GLOBULES)
    radius = random.between("regular radius", 0.036, 0.043)[:, None] * alike
    brown = random.between("regular brown", 0.9, 1.15)[:, None] * (out < 0.9)
    return _splat(canvas, Globules(x, y, radius, one, one, brown, 0 * one))


def irregular_globules(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats, Flags]:
    """Brown and blue pigment to add, and the pixels of the globules, each (N, size, size)."""
    cluster = np.arange(_IRREGULAR_GLOBULES) % _CLUSTERS
    turn = random.between("cluster turn", 0, 2 * np.pi, _CLUSTERS)[:, cluster]
    turn = turn + random.between("turn in cluster", -0.7, 0.7, _IRREGULAR_GLOBULES)
    out = random.between("cluster distance", 0.3, 0.7, _CLUSTERS)[:, cluster]
    out = np.clip(out + random.between("distance in cluster", -0.3, 0.3, _IRREGULAR_GLOBULES), 0.05, 0.92)
    x, y = _points(on, turn, out)
    kept = random.uniform("kept", _IRREGULAR_GLOBULES) < random.between("crowd", 0.55, 1.0)[:, None]
    kind = random.uniform("kind of globule", _IRREGULAR_GLOBULES)
    shade = random.between("irregular shade", 0.7, 1.7, _IRREGULAR_GLOBULES) * kept
    blue_grey = kind < 0.25
    globules = Globules(
        x=x,
        y=y,
        radius=0.022 + 0.062 * random.uniform("irregular radius", _IRREGULAR_GLOBULES) ** 2,
        stretch=random.between("stretch", 1.0, 1.35, _IRREGULAR_GLOBULES),
        turn=random.between("globule turn", 0, np.pi, _IRREGULAR_GLOBULES),
        brown=shade * np.where(blue_grey, np.float32(0.1), np.float32(1)),
        blue=shade * np.where(blue_grey, np.float32(0.6), np.where(kind > 0.8, np.float32(0.5), np.float32(0))),
    )
    return _splat(canvas, globules)


def _points(on: Lesion, turn: Floats, out: Floats) -> tuple[Floats, Floats]:
    """The points (N, K) in these directions, at these shares of the way from the centre to the border."""
    c, s = np.cos(turn), np.sin(turn)
    distance = on.outline.border(c, s) * out
    return on.outline.centre_x[:, None] + c * distance, on.outline.centre_y[:, None] + s * distance


def _splat(canvas: Canvas, globules: Globules) -> tuple[Floats, Floats, Flags]:
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


def veil(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats, Flags]:
    """Opacity (N, size, size), colour (3, N, size, size) in [0, 1], and the pixels of the veil (N, size, size)."""
    radius = on.outline.radius
    turn = random.between("veil turn", 0, 2 * np.pi)
    out = radius * random.between("veil distance", 0.1, 0.4)
    dx, dy = on.x - column(out * np.cos(turn)), on.y - column(out * np.sin(turn))
    reach = column(radius * random.between("veil reach", 0.75, 1.0))
    blob = 1 - np.sqrt(dx * dx + dy * dy) / reach + 0.24 * canvas.field(random, "veil outline", 6)
    blob += 0.1 * canvas.field(random, "veil fringe", 16)
    cover = smoothstep(blob, -0.05, 0.6) * smoothstep(on.depth, 0.0, 0.2)
    opacity = column(random.between("veil opacity", 0.7, 0.88)) * cover
    haze = smoothstep(canvas.field(random, "haze", 7) + 0.5 * canvas.field(random, "fine haze", 18), -1.3, 1.9)
    colour = _BLUE[:, None, None, None] + (_WHITE - _BLUE)[:, None, None, None] * haze
    return opacity, colour.astype(np.float32), opacity > 0.1
