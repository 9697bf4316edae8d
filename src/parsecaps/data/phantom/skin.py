"""Skin: its tone (from very light to dark, in CIELAB), its fine relief, and the hair on it."""

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, column, smoothstep
from parsecaps.data.phantom.randomness import Floats, Randomness

_HAIRS = 12
_OCTAVES = ((5, 0.035), (16, 0.02), (40, 0.018), (90, 0.018), (180, 0.015))


def skin_tone(random: Randomness) -> Floats:
    """(N, 3) sRGB in [0, 1]: an individual typology angle from 62 (Fitzpatrick I) to -30 degrees (VI).

    The angle is atan((L* - 50) / b*), by which dermatologists grade skin colour.
    """
    angle = np.radians(62 - 92 * random.uniform("tone").astype(np.float64) ** 1.4)
    b = random.between("yellow", 13, 20).astype(np.float64)
    lightness = 50 + b * np.tan(angle)
    return _from_lab(lightness, random.between("pink", 9, 15).astype(np.float64), b)


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
        across = (canvas.y * c - canvas.x * s - column(offset[rows, k]) - 0.5 * slope * along) / np.sqrt(
            1 + slope * slope
        )
        t = (along - column(start[rows, k])) / column(length[rows, k])  # 0 at the root, 1 at the tip
        half = column(width[rows, k]) * np.clip(1.1 - 0.7 * t, 0.2, 1.1)
        drawn = np.maximum(half, 0.5 * canvas.pixel)  # thinner than a pixel is a pixel, but fainter
        ends = smoothstep(t, 0, 0.02) * (1 - smoothstep(t, 0.93, 1)) * (half / drawn)
        strand = (1 - smoothstep(np.abs(across), 0.4 * drawn, 1.5 * drawn)) * ends
        opacity[rows] = np.maximum(opacity[rows], strand)
        beside = (1 - smoothstep(np.abs(across - 1.8 * drawn), 0 * drawn, 3 * drawn)) * ends
        shadow[rows] = np.maximum(shadow[rows], beside)
    return opacity, shadow


def _from_lab(lightness: np.ndarray, a: np.ndarray, b: np.ndarray) -> Floats:
    """CIELAB (D65) to sRGB in [0, 1]."""
    fy = (lightness + 16) / 116
    f = np.stack([fy + a / 500, fy, fy - b / 200], -1)
    xyz = np.where(f > 6 / 29, f**3, (f - 4 / 29) * 3 * (6 / 29) ** 2) * (0.9505, 1.0, 1.089)
    x, y, z = xyz[..., 0], xyz[..., 1], xyz[..., 2]
    linear = np.stack(
        [
            3.2406 * x - 1.5372 * y - 0.4986 * z,
            -0.9689 * x + 1.8758 * y + 0.0415 * z,
            0.0557 * x - 0.2040 * y + 1.0570 * z,
        ],
        -1,
    ).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055).astype(np.float32)
