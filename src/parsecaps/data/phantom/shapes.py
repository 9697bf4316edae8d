"""The lesion: an irregular outline with a soft edge, and the uneven brown inside it."""

from typing import NamedTuple

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, column, smoothstep
from parsecaps.data.phantom.randomness import Flags, Floats, Randomness

_HARMONICS = 9


class Outline(NamedTuple):
    """A closed curve: its distance from the centre is a Fourier series of the direction.

    Shapes:
        - centre_x, centre_y, radius: (N,)
        - cosines, sines: (N, harmonics), the first for twice round
    """

    centre_x: Floats
    centre_y: Floats
    radius: Floats
    cosines: Floats
    sines: Floats

    def border(self, c: Floats, s: Floats) -> Floats:
        """(N, ...) -> (N, ...): the radius in the direction whose cosine and sine are `c` and `s`."""
        shape = (-1,) + (1,) * (c.ndim - 1)
        previous_c, previous_s, c_k, s_k = c, s, c * c - s * s, 2 * c * s
        total = np.ones_like(c)
        for k in range(self.cosines.shape[1]):
            total += self.cosines[:, k].reshape(shape) * c_k + self.sines[:, k].reshape(shape) * s_k
            c_next, s_next = 2 * c * c_k - previous_c, 2 * c * s_k - previous_s
            previous_c, previous_s, c_k, s_k = c_k, s_k, c_next, s_next
        result: Floats = total * self.radius.reshape(shape)
        return result


class Lesion(NamedTuple):
    """A lesion on its canvas.

    Shapes:
        - x, y: (N, size, size), from the centre
        - distance, border: (N, size, size), of the pixel and of the outline in its direction, from the centre
        - depth: (N, size, size), 1 in the centre, 0 on the outline, negative outside
        - inside: (N, size, size), 1 within, 0 outside, soft at the edge
        - mask: (N, size, size)
    """

    outline: Outline
    x: Floats
    y: Floats
    distance: Floats
    border: Floats
    depth: Floats
    inside: Floats
    mask: Flags


def outline(random: Randomness) -> Outline:
    """Outlines from nearly round to bulging and notched."""
    order = np.arange(2, _HARMONICS + 2, dtype=np.float32)
    size = random.between("irregularity", 0.12, 0.34)[:, None] / order
    phase = random.between("outline phase", 0, 2 * np.pi, _HARMONICS)
    size = size * random.between("outline amplitude", 0.3, 1.0, _HARMONICS)
    return Outline(
        centre_x=random.between("centre x", -0.08, 0.08),
        centre_y=random.between("centre y", -0.08, 0.08),
        radius=random.between("radius", 0.48, 0.68),
        cosines=size * np.cos(phase),
        sines=size * np.sin(phase),
    )


def lesion(canvas: Canvas, random: Randomness) -> Lesion:
    """The outline laid on the canvas."""
    shape = outline(random)
    x = np.broadcast_to(canvas.x - column(shape.centre_x), (len(shape.radius), canvas.size, canvas.size))
    y = np.broadcast_to(canvas.y - column(shape.centre_y), x.shape)
    distance = np.sqrt(x * x + y * y) + 1e-6
    border = shape.border(x / distance, y / distance)
    depth = 1 - distance / border
    edge = column(random.between("edge", 0.05, 0.16))
    inside = smoothstep(depth, -edge, edge)
    return Lesion(shape, x, y, distance, border, depth, inside, depth > 0)


def pigmentation(canvas: Canvas, random: Randomness, on: Lesion) -> tuple[Floats, Floats]:
    """Brown and red pigment, each (N, size, size), of the lesion without any structure: shades of brown."""
    shade = column(random.between("shade", 0.35, 0.75))
    variegation = column(random.between("variegation", 0.08, 0.2))
    brown = shade + variegation * canvas.field(random, "shades", 5) + 0.3 * on.depth
    brown += variegation * (
        0.5 * canvas.field(random, "finer shades", 12) + 0.3 * canvas.field(random, "finest shades", 28)
    )
    blotch = smoothstep(canvas.field(random, "blotch", 3) + 0.8 * on.depth, 0.9, 1.5)
    brown += column(random.between("blotch strength", 0.0, 0.45)) * blotch
    red = 0.08 + 0.1 * canvas.field(random, "flush", 4)
    return np.maximum(brown, 0.15) * on.inside, red * on.inside
