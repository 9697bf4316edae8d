"""The structures that concepts name: pigment network, streaks, dots and globules, veil (`docs/phantom.md`)."""

from collections.abc import Callable

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, Flags, Floats, Integers, Randomness, column, smoothstep
from parsecaps.data.phantom.lesion import Lesion, border

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
    line = _network(canvas, random, on, "typical", mesh, (0.13, 0.16), bend=0.1, cells=5, jitter=0.17)
    cover = smoothstep(on.depth, 0.02, 0.4)
    strength = column(random.between("typical strength", 0.95, 1.2)) + 0.1 * canvas.field(random, "typical shade", 9)
    return strength * cover * (line - 0.25), cover > 0.15


def atypical_network(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add (N, size, size), and the region that the network covers."""
    mesh = column(random.between("atypical mesh", 0.16, 0.2))
    thickness = np.clip(0.22 + 0.13 * canvas.field(random, "thickness", 8), 0.06, 0.6)
    whole = smoothstep(canvas.field(random, "breaks", 11), -1.1, -0.6)
    line = whole * _network(canvas, random, on, "atypical", mesh, (thickness, 0.13), bend=0.4, cells=6, jitter=0.5)
    strength = np.clip(1.2 + 0.4 * canvas.field(random, "unevenness", 7), 0.55, 2.2)
    direction = random.between("atypical side", 0, 2 * np.pi)
    side = (on.x * column(np.cos(direction)) + on.y * column(np.sin(direction))) / column(on.radius)
    patch = side + 0.3 * canvas.field(random, "patch", 5) + column(random.between("atypical extent", 0.3, 0.75))
    cover = smoothstep(patch, 0.0, 0.3) * smoothstep(on.depth, -0.02, 0.03)
    return cover * (strength * line - 0.08), cover > 0.15


def _network(
    canvas: Canvas,
    random: Randomness,
    on: Lesion,
    name: str,
    mesh: Floats,
    line: tuple[float | Floats, float],
    *,
    bend: float,
    cells: int,
    jitter: float,
) -> Floats:
    """(N, size, size): 1 on the borders between the cells of a lattice, turned and bent at random, 0 in the holes.

    The lattice is triangular, each point displaced by up to `jitter`: the cells are hexagons. `line` is half the width
    of a line and the softness of its edges, which are never sharper than a pixel. Lengths are in meshes.
    """
    turn = random.between(f"{name} turn", 0, np.pi)
    c, s = column(np.cos(turn)) / mesh, column(np.sin(turn)) / mesh
    u = on.x * c + on.y * s + bend * canvas.field(random, f"{name} bend", cells)
    v = on.y * c - on.x * s + bend * canvas.field(random, f"{name} bend across", cells)
    names = (f"lattice {jitter}", f"lattice {jitter} across")
    along, across = (random.between(each, -jitter, jitter, _TILE * _TILE).ravel() for each in names)
    image = (np.arange(len(u), dtype=np.int32) * (_TILE * _TILE))[:, None, None]
    nearest_row = np.rint(v / _ROW)
    first = np.full(u.shape, 9, np.float32)  # the squared distances of the two nearest points
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
    half_width, soft = line[0], np.maximum(np.float32(line[1]), 0.5 * (canvas.pixel / mesh))
    return 1 - smoothstep(np.sqrt(second) - np.sqrt(first), half_width - soft, half_width + soft)


def regular_streaks(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add, and the pixels of the streaks, each (N, size, size)."""
    evenness = random.between("evenness", 0.85, 1.15, _REGULAR_STREAKS)
    length = random.between("regular length", 0.13, 0.17)[:, None] * evenness
    strength = random.between("regular streak strength", 0.8, 1.05)[:, None] * np.ones_like(evenness)
    return _streaks(canvas, random, on, "regular", length, strength, offset=0.08, tilt=0.02, width=0.02, bulb=0.25)


def irregular_streaks(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add, and the pixels of the streaks, each (N, size, size)."""
    k = _IRREGULAR_STREAKS
    place = np.arange(k)
    count = random.between("irregular count", 4, 9)[:, None]  # neighbours, with gaps
    kept = (place < count) & ((random.uniform("irregular gap", k) < 0.8) | (place < 3))
    length = random.between("irregular length", 0.1, 0.3, k)
    strength = random.between("irregular strength", 0.7, 1.6, k) * kept
    width, bulb = random.between("irregular width", 0.016, 0.042, k), random.between("irregular bulb", -0.3, 0.9, k)
    return _streaks(canvas, random, on, "irregular", length, strength, offset=0.35, tilt=0.14, width=width, bulb=bulb)


def _streaks(
    canvas: Canvas,
    random: Randomness,
    on: Lesion,
    name: str,
    length: Floats,
    strength: Floats,
    *,
    offset: float,
    tilt: float,
    width: float | Floats,
    bulb: float | Floats,
) -> tuple[Floats, Flags]:
    """One streak in each of K equal sectors of the border, of these lengths (N, K); a strength of 0 is no streak.

    Each lies up to `offset` sectors beside the middle, its tip leans aside by up to `tilt`, and `bulb` swells the tip.
    """
    n, sectors = length.shape
    start = random.uniform(f"{name} start")
    beside = random.between(f"{name} offset", -offset, offset, sectors)
    lean = random.between(f"{name} tilt", -tilt, tilt, sectors)
    wide, swell = (np.broadcast_to(np.float32(each), length.shape) for each in (width, bulb))
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
        across = np.abs((place - step - beside.ravel()[index]) * arc - lean.ravel()[index] * np.maximum(t, 0))
        swelling = np.maximum(1 - np.abs(t - 0.85) * 5, 0)
        half = wide.ravel()[index] * (1.6 - 1.1 * np.clip(t, -0.2, 1) + swell.ravel()[index] * swelling)
        soft = max(0.016, 0.5 * canvas.pixel)
        shape = 1 - smoothstep(across, half - soft, half + soft)
        shape *= smoothstep(t, -1.0, 0.0) * (1 - smoothstep(t, 0.6, 1.15))
        amount = strength.ravel()[index]
        pigment = np.maximum(pigment, shape * amount)
        solid = np.maximum(solid, shape * (amount > 0))
    return pigment, solid > 0.2


def regular_globules(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats, Flags]:
    """Brown and blue pigment to add, and the pixels of the globules, each (N, size, size)."""
    k = np.arange(_REGULAR_GLOBULES, dtype=np.float32)
    turn = random.between("spiral start", 0, 2 * np.pi)[:, None] + k * np.float32(_GOLDEN_ANGLE)
    spacing = random.between("regular spacing", 0.105, 0.125)[:, None]
    out = np.sqrt(k + 0.5) * spacing / on.radius[:, None]  # a sunflower's seeds: evenly spread
    x, y = _points(on, turn, out + random.between("regular shift", -0.02, 0.02, _REGULAR_GLOBULES))
    one, alike = np.ones_like(x), random.between("alike", 0.93, 1.07, _REGULAR_GLOBULES)
    radius = random.between("regular radius", 0.036, 0.043)[:, None] * alike
    brown = random.between("regular brown", 0.9, 1.15)[:, None] * (out < 0.9)
    return _splat(canvas, x, y, radius, one, one, brown, 0 * one)


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
    radius = 0.022 + 0.062 * random.uniform("irregular radius", _IRREGULAR_GLOBULES) ** 2
    stretch = random.between("stretch", 1.0, 1.35, _IRREGULAR_GLOBULES)
    turn = random.between("globule turn", 0, np.pi, _IRREGULAR_GLOBULES)
    brown = shade * np.where(blue_grey, np.float32(0.1), np.float32(1))
    blue = shade * np.where(blue_grey, np.float32(0.6), np.where(kind > 0.8, np.float32(0.5), np.float32(0)))
    return _splat(canvas, x, y, radius, stretch, turn, brown, blue)


def _points(on: Lesion, turn: Floats, out: Floats) -> tuple[Floats, Floats]:
    """The points (N, K) in these directions, at these shares of the way from the centre to the border."""
    c, s = np.cos(turn), np.sin(turn)
    distance = border(c, s, on.radius, on.cosines, on.sines) * out
    return on.centre_x[:, None] + c * distance, on.centre_y[:, None] + s * distance


def _splat(canvas: Canvas, *globules: Floats) -> tuple[Floats, Floats, Flags]:
    """Draw K globules in each of N lesions: their x, y, radius, stretch, turn, brown and blue, each (N, K)."""
    n, count = globules[0].shape
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
    radius = on.radius
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


# By concept: each returns the brown pigment to add (some also blue) and the pixels of the structure.
STRUCTURES: dict[str, Callable[[Canvas, Randomness, Lesion], tuple[np.ndarray, ...]]] = {
    "typical pigment network": typical_network,
    "atypical pigment network": atypical_network,
    "regular streaks": regular_streaks,
    "irregular streaks": irregular_streaks,
    "regular dots and globules": regular_globules,
    "irregular dots and globules": irregular_globules,
}
