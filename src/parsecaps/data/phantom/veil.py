"""Blue-whitish veil: confluent, irregular blue over part of the lesion under a white haze, as through ground glass."""

import numpy as np

from parsecaps.data.phantom.canvas import Canvas, column, smoothstep
from parsecaps.data.phantom.randomness import Flags, Floats, Randomness
from parsecaps.data.phantom.shapes import Lesion

_BLUE = np.array([84, 98, 132], np.float32) / 255
_WHITE = np.array([186, 192, 206], np.float32) / 255


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
