"""Pigment network: a honeycomb of brown lines around lighter holes.

Typical: thin lines, even meshes, fading towards the border. Atypical: meshes of all sizes, lines thick and thin,
broken, unevenly dark, over part of the lesion, ending abruptly.

The pixels of a network are all that it covers, holes and lines.
"""

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, column, smoothstep
from parsecaps.data.phantom.randomness import Flags, Floats, Randomness
from parsecaps.data.phantom.shapes import Lesion

_ROW = np.float32(np.sqrt(3) / 2)  # between the rows of a triangular lattice
_TILE = 32  # the lattice repeats after so many points, more than fit on a canvas


def typical_network(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add (N, size, size), and the region that the network covers."""
    mesh = column(random.between("typical mesh", 0.115, 0.14))
    turn = random.between("typical turn", 0, np.pi)
    bend = 0.1 * canvas.field(random, "typical bend", 5), 0.1 * canvas.field(random, "typical bend across", 5)
    u, v = _turned(on, turn, mesh)
    edge = _edge_distance(u + bend[0], v + bend[1], 0.17, random)
    line = _line(edge, 0.13, 0.16, canvas.pixel / mesh)
    cover = smoothstep(on.depth, 0.02, 0.4)
    strength = column(random.between("typical strength", 0.95, 1.2)) + 0.1 * canvas.field(random, "typical shade", 9)
    return strength * cover * (line - 0.25), cover > 0.15


def atypical_network(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Flags]:
    """Pigment to add (N, size, size), and the region that the network covers."""
    mesh = column(random.between("atypical mesh", 0.16, 0.2))
    turn = random.between("atypical turn", 0, np.pi)
    bend = 0.4 * canvas.field(random, "atypical bend", 6), 0.4 * canvas.field(random, "atypical bend across", 6)
    u, v = _turned(on, turn, mesh)
    edge = _edge_distance(u + bend[0], v + bend[1], 0.5, random)
    thickness = np.clip(0.22 + 0.13 * canvas.field(random, "thickness", 8), 0.06, 0.6)
    whole = smoothstep(canvas.field(random, "breaks", 11), -1.1, -0.6)
    line = _line(edge, thickness, 0.13, canvas.pixel / mesh) * whole
    strength = np.clip(1.2 + 0.4 * canvas.field(random, "unevenness", 7), 0.55, 2.2)
    direction = random.between("atypical side", 0, 2 * np.pi)
    side = (on.x * column(np.cos(direction)) + on.y * column(np.sin(direction))) / column(on.outline.radius)
    patch = side + 0.3 * canvas.field(random, "patch", 5) + column(random.between("atypical extent", 0.3, 0.75))
    cover = smoothstep(patch, 0.0, 0.3) * smoothstep(on.depth, -0.02, 0.03)
    return cover * (strength * line - 0.08), cover > 0.15


def _turned(on: Lesion, turn: Floats, mesh: Floats) -> tuple[Floats, Floats]:
    """Coordinates in meshes along a lattice that is turned by an angle."""
    c, s = column(np.cos(turn)) / mesh, column(np.sin(turn)) / mesh
    return on.x * c + on.y * s, on.y * c - on.x * s


def _line(edge: Floats, half_width: float | Floats, soft: float, pixel: Floats) -> Floats:
    """1 on the lines, 0 in the holes, with soft edges that are never sharper than a pixel (all in meshes)."""
    soft = np.maximum(np.float32(soft), 0.5 * pixel)
    return 1 - smoothstep(edge, half_width - soft, half_width + soft)


def _edge_distance(u: Floats, v: Floats, jitter: float, random: Randomness) -> Floats:
    """(N, size, size): how far a point is from the border between the cells of its two nearest lattice points.

    The points form a triangular lattice, of spacing 1, each displaced by up to `jitter`: the cells are hexagons,
    regular without jitter.
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
