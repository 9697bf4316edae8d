"""Skin (tone, relief and hair) and the lesion on it: an outline with a soft edge, and uneven brown inside."""

from typing import NamedTuple

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, Flags, Floats, Randomness, column, smoothstep

_HARMONICS = 9  # of an outline
_HAIRS = 12
_TO_SRGB = ((3.2406, -1.5372, -0.4986), (-0.9689, 1.8758, 0.0415), (0.0557, -0.2040, 1.0570))  # from XYZ
_OCTAVES = ((5, 0.035), (16, 0.02), (40, 0.018), (90, 0.018), (180, 0.015))


class Lesion(NamedTuple):
    """A lesion on its canvas. Its outline is a Fourier series: the distance from the centre by the direction.

    Shapes:
        - centre_x, centre_y, radius: (N,)
        - cosines, sines: (N, harmonics), the first for twice round
        - x, y: (N, size, size), from the centre
        - distance, border: (N, size, size), of the pixel and of the outline in its direction, from the centre
        - depth: (N, size, size), 1 in the centre, 0 on the outline, negative outside
        - inside: (N, size, size), 1 within, 0 outside, soft at the edge
        - mask: (N, size, size)
    """

    centre_x: Floats
    centre_y: Floats
    radius: Floats
    cosines: Floats
    sines: Floats
    x: Floats
    y: Floats
    distance: Floats
    border: Floats
    depth: Floats
    inside: Floats
    mask: Flags


def border(c: Floats, s: Floats, radius: Floats, cosines: Floats, sines: Floats) -> Floats:
    """The radius of an outline in the direction with cosine `c` and sine `s`: (N, ...) -> (N, ...)."""
    shape = (-1,) + (1,) * (c.ndim - 1)
    previous_c, previous_s, c_k, s_k = c, s, c * c - s * s, 2 * c * s
    total = np.ones_like(c)
    for k in range(cosines.shape[1]):
        total += cosines[:, k].reshape(shape) * c_k + sines[:, k].reshape(shape) * s_k
        c_next, s_next = 2 * c * c_k - previous_c, 2 * c * s_k - previous_s
        previous_c, previous_s, c_k, s_k = c_k, s_k, c_next, s_next
    return np.asarray(total * radius.reshape(shape))


def lesion(canvas: Canvas, random: Randomness) -> Lesion:
    """Lesions with outlines from nearly round to bulging and notched."""
    order = np.arange(2, _HARMONICS + 2, dtype=np.float32)
    size = random.between("irregularity", 0.12, 0.34)[:, None] / order
    phase = random.between("outline phase", 0, 2 * np.pi, _HARMONICS)
    size = size * random.between("outline amplitude", 0.3, 1.0, _HARMONICS)
    outline = (random.between("radius", 0.48, 0.68), size * np.cos(phase), size * np.sin(phase))
    centre = (random.between("centre x", -0.08, 0.08), random.between("centre y", -0.08, 0.08))
    x = np.broadcast_to(canvas.x - column(centre[0]), (random.count, canvas.size, canvas.size))
    y = np.broadcast_to(canvas.y - column(centre[1]), x.shape)
    distance = np.sqrt(x * x + y * y) + 1e-6
    there = border(x / distance, y / distance, *outline)
    depth = 1 - distance / there
    edge = column(random.between("edge", 0.05, 0.16))
    return Lesion(*centre, *outline, x, y, distance, there, depth, smoothstep(depth, -edge, edge), depth > 0)


def pigmentation(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats]:
    """Brown and red pigment, each (N, size, size), of the lesion without any structure: shades of brown."""
    shade = column(random.between("shade", 0.35, 0.75))
    variegation = column(random.between("variegation", 0.08, 0.2))
    brown = shade + variegation * canvas.field(random, "shades", 5) + 0.3 * on.depth
    finer, finest = canvas.field(random, "finer shades", 12), canvas.field(random, "finest shades", 28)
    brown += variegation * (0.5 * finer + 0.3 * finest)
    blotch = smoothstep(canvas.field(random, "blotch", 3) + 0.8 * on.depth, 0.9, 1.5)
    brown += column(random.between("blotch strength", 0.0, 0.45)) * blotch
    red = 0.08 + 0.1 * canvas.field(random, "flush", 4)
    return np.maximum(brown, 0.15) * on.inside, red * on.inside


def skin_tone(random: Randomness) -> Floats:
    """(N, 3) sRGB in [0, 1]: an individual typology angle atan((L* - 50) / b*) from 62 (Fitzpatrick I) to -30 (VI)."""
    angle = np.radians(62 - 92 * random.uniform("tone").astype(np.float64) ** 1.4)
    b = random.between("yellow", 13, 20).astype(np.float64)
    lightness = 50 + b * np.tan(angle)
    fy = (lightness + 16) / 116  # from CIELAB (D65)
    f = np.stack([fy + random.between("pink", 9, 15).astype(np.float64) / 500, fy, fy - b / 200], -1)
    xyz = np.where(f > 6 / 29, f**3, (f - 4 / 29) * 3 * (6 / 29) ** 2) * (0.9505, 1.0, 1.089)
    x, y, z = xyz[..., 0], xyz[..., 1], xyz[..., 2]
    linear = np.stack([red * x + green * y + blue * z for red, green, blue in _TO_SRGB], -1).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055).astype(np.float32)


def skin_relief(canvas: Canvas, random: Randomness) -> Floats:
    """(N, size, size): pigment, as much above 0 as below, of mottling, grain and the crossing furrows of skin."""
    relief = np.zeros((random.count, canvas.size, canvas.size), np.float32)
    for cells, strength in _OCTAVES:
        if cells <= canvas.size / 2:  # finer than the pixels is nothing to see
            relief += strength * canvas.field(random, f"skin {cells}", cells)
    turn = random.between("furrow turn", 0, np.pi)
    bend = 1.3 * canvas.field(random, "furrow bend", 6)
    spacing = 0.075
    visible = min(max(spacing / canvas.pixel / 3 - 0.5, 0.0), 1.0)
    if visible:
        for offset in (0.0, 1.2):
            c, s = column(np.cos(turn + offset)), column(np.sin(turn + offset))
            wave = np.cos((canvas.x * c + canvas.y * s) * np.float32(2 * np.pi / spacing) + bend)
            relief += 0.035 * visible * np.maximum(wave, 0) ** 4
    return relief


def hair(canvas: Canvas, patient: Randomness, random: Randomness) -> tuple[Floats, Floats]:
    """Opacity of hair, and of the shadow beside it, each (N, size, size): from none to a dozen bent strands."""
    hairiness = np.maximum(patient.between("hairiness", -0.8, 1.0), 0) ** 2
    count = np.floor(hairiness * _HAIRS * random.between("hairs", 0.7, 1.3))
    comb = patient.between("comb", 0, 2 * np.pi)
    n = len(count)
    opacity, shadow = (np.zeros((n, canvas.size, canvas.size), np.float32) for _ in range(2))
    turn = comb[:, None] + random.between("hair turn", -0.5, 0.5, _HAIRS)
    offset = random.between("hair offset", -0.95, 0.95, _HAIRS)
    bend = random.between("hair bend", -0.35, 0.35, _HAIRS)
    start = random.between("hair start", -1.6, -0.2, _HAIRS)
    length = random.between("hair length", 0.8, 2.4, _HAIRS)
    width = patient.between("hair width", 0.008, 0.015)[:, None] * random.between("hair width", 0.7, 1.2, _HAIRS)
    for k in range(_HAIRS):
        rows = np.flatnonzero(count > k)
        if not len(rows):
            break
        c, s = column(np.cos(turn[rows, k])), column(np.sin(turn[rows, k]))
        along = canvas.x * c + canvas.y * s
        slope = 2 * column(bend[rows, k]) * along
        across = canvas.y * c - canvas.x * s - column(offset[rows, k]) - 0.5 * slope * along
        across = across / np.sqrt(1 + slope * slope)
        t = (along - column(start[rows, k])) / column(length[rows, k])  # 0 at the root, 1 at the tip
        half = column(width[rows, k]) * np.clip(1.1 - 0.7 * t, 0.2, 1.1)
        drawn = np.maximum(half, 0.5 * canvas.pixel)  # thinner than a pixel is a pixel, but fainter
        ends = smoothstep(t, 0, 0.02) * (1 - smoothstep(t, 0.93, 1)) * (half / drawn)
        strand = (1 - smoothstep(np.abs(across), 0.4 * drawn, 1.5 * drawn)) * ends
        opacity[rows] = np.maximum(opacity[rows], strand)
        beside = (1 - smoothstep(np.abs(across - 1.8 * drawn), 0 * drawn, 3 * drawn)) * ends
        shadow[rows] = np.maximum(shadow[rows], beside)
    return opacity, shadow
