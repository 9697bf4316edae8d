"""ParseCaps without its parse tree: what the tree is worth shows against it (Sec. 4.5.1, Sec. 4.5.3)."""

from typing import Any

from parsecaps.models.parsecaps import PRESETS, ParseCaps

# without the tree: the same primary grid and as many cells, and the constant dimension with as many parameters
FLAT_PRESETS: dict[str, dict[str, Any]] = {
    "medical": PRESETS["medical"] | {"dims": (52,) * 4, "heads": (4, 4, 4)},
    "digits": PRESETS["digits"] | {"dims": (12,) * 4, "heads": (4, 4, 4)},
    "tiny": PRESETS["tiny"] | {"dims": (12,) * 4, "heads": (2, 2, 2), "radius": (1, 1, 1)},
}


class FlatCaps(ParseCaps):
    """The same initial block, routing, cells and heads, at a constant number and dimension of capsules.

    The paper's baseline "with SAA routing but without the parse-tree-like structure", of which it gives no sizes. Every
    cell keeps the primary grid, so that maps are as fine as those of ParseCaps, and all capsules are connected to the
    heads. The dimension of a preset is the one that gives as many parameters as ParseCaps has; the larger grids then
    cost about three times the work. Build it from a preset, or give equal `dims`.

    Shapes:
        - input: image (B, in_channels, image_size, image_size)
        - output: `Output`

    >>> model = FlatCaps.from_preset("medical", num_classes=3)
    >>> model.widths
    [28, 28, 28, 28]
    """

    presets = FLAT_PRESETS
    stride = 1
