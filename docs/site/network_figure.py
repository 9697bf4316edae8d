"""Draw the figure of the network: `python -m docs.site.network_figure` writes docs/assets/network.svg.

The network of the paper with the numbers of the preset `medical`. Lines and text take the colour of their page.
"""

from collections.abc import Iterator
from pathlib import Path

TARGET = Path(__file__).parents[1] / "assets" / "network.svg"
STYLE = """
svg.network { color: #222; font-family: system-ui, sans-serif; font-size: 19px; }
@media (prefers-color-scheme: dark) { svg.network { color: #ddd; } }
.network text { fill: currentColor; text-anchor: middle; }
.network .name { font-weight: 600; }
.network .small { font-size: 17px; opacity: .8; }
.network .line { stroke: currentColor; fill: none; stroke-width: 1.5; }
.network .grid { stroke: currentColor; stroke-opacity: .35; fill: none; stroke-width: 1; }
.network .box { stroke: currentColor; stroke-width: 1.5; fill: #12a594; fill-opacity: .16; }
.network .chosen { fill: #e5821e; }
.network .route { stroke: #e5821e; stroke-width: 1.6; fill: none; opacity: .85; }
"""
MIDDLE = 190.0  # of the row of the tree
# left edge, side, cells drawn a side, and which of them are chosen, by (row, column)
GRIDS: dict[str, tuple[float, float, int, list[tuple[int, int]]]] = {
    "primary": (226, 168, 28, [(8, 9), (9, 13), (11, 10), (12, 15), (15, 9), (17, 12), (18, 16), (14, 19)]),
    "block 1": (446, 140, 14, [(4, 5), (5, 7), (7, 5), (8, 7)]),
    "block 2": (640, 105, 7, [(2, 3), (3, 2), (4, 3)]),
    "block 3": (798, 80, 4, [(1, 1)]),
}
TREE = {  # the children of each chosen capsule, by number, from the top
    ("block 3", 0): [0, 1, 2],
    ("block 2", 0): [0, 1],
    ("block 2", 1): [2],
    ("block 2", 2): [2, 3],
    ("block 1", 0): [0, 2],
    ("block 1", 1): [1, 3],
    ("block 1", 2): [4, 5],
    ("block 1", 3): [6, 7],
}
NAMES = list(GRIDS)


def centre(grid: str, number: int) -> tuple[float, float]:
    """Where a chosen capsule is drawn."""
    left, side, cells, chosen = GRIDS[grid]
    row, column = chosen[number]
    return left + (column + 0.5) * side / cells, MIDDLE - side / 2 + (row + 0.5) * side / cells


def lines_of(grid: str) -> Iterator[str]:
    """A grid with its chosen capsules."""
    left, side, cells, chosen = GRIDS[grid]
    top, step = MIDDLE - side / 2, side / cells
    path = [f"M{left + i * step:.1f} {top:.1f}v{side}M{left:.1f} {top + i * step:.1f}h{side}" for i in range(cells + 1)]
    yield f'<path class="grid" d="{"".join(path)}"/>'
    for row, column in chosen:
        place = f'x="{left + column * step:.1f}" y="{top + row * step:.1f}" width="{step:.1f}" height="{step:.1f}"'
        yield f'<rect class="chosen" {place}/>'


def routes() -> Iterator[str]:
    """A curve from each child to the parent that chose it."""
    for (grid, number), children in TREE.items():
        below = NAMES[NAMES.index(grid) - 1]
        for child in children:
            (x, y), (to_x, to_y) = centre(below, child), centre(grid, number)
            bend = (x + to_x) / 2
            curve = f"M{x:.1f} {y:.1f}C{bend:.1f} {y:.1f} {bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
            yield f'<path class="route" d="{curve}"/>'


def text(x: float, y: float, words: str, kind: str = "small") -> str:
    """A line of text, centred."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}">{words}</text>'


def arrow(path: str) -> str:
    """A line with a head."""
    return f'<path class="line" d="{path}" marker-end="url(#head)"/>'


def lesion(x: float, y: float, side: float, blur: str = "") -> str:
    """An image in its frame."""
    middle, radius = side / 2, side * 0.27
    place = f'cx="{x + middle:g}" cy="{y + middle:g}" rx="{radius:g}" ry="{radius * 0.85:g}"'
    spot = f'<ellipse {place} fill="#7a4a32"{blur}/>'
    return f'<rect x="{x}" y="{y}" width="{side}" height="{side}" fill="#e3b598" stroke="currentColor"/>{spot}'


def capsules(x: float, y: float, number: int) -> str:
    """A few capsules beside each other."""
    return "".join(
        f'<rect class="box" x="{x + i * 17:g}" y="{y:g}" width="12" height="46" rx="6"/>' for i in range(number)
    )


def draw() -> str:
    """The whole figure."""
    parts = [
        '<svg class="network" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1110 520" role="img"'
        ' aria-label="From the image through four grids of capsules to classes, concepts and a reconstruction">',
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0L10 5L0 10z" fill="currentColor"/></marker></defs>',
        lesion(10, MIDDLE - 50, 100),
        text(60, 266, "image", "name"),
        text(60, 288, "224 x 224"),
        arrow(f"M112 {MIDDLE}h22"),
        *(
            f'<rect class="box" x="{138 + 16 * i}" y="{MIDDLE - 60 + 8 * i}" width="11" height="{120 - 16 * i}"/>'
            for i in range(4)
        ),
        text(150, 92, "initial block", "name"),
        text(150, 114, "4 convolutions"),
        arrow(f"M202 {MIDDLE}h20"),
    ]
    about = {
        "primary": ("primary capsules", "784 capsules of 8"),
        "block 1": ("block 1, one cell", "196 of 16"),
        "block 2": ("block 2, two", "49 of 36"),
        "block 3": ("block 3, five", "16 of 64"),
    }
    for grid, (name, size) in about.items():
        left, side, _, _ = GRIDS[grid]
        parts += [*lines_of(grid), text(left + side / 2, 302, name, "name"), text(left + side / 2, 326, size)]
    parts += routes()
    parts += [
        text(
            560,
            30,
            "the parse tree: each parent chooses its children; what it does not choose has a coupling of exactly zero",
            "small",
        ),
        arrow("M884 175C910 160 915 112 946 104"),
        arrow("M884 205C910 220 915 258 946 268"),
        capsules(956, 74, 3),
        text(1020, 62, "FullyCaps", "name"),
        text(1062, 94, "one for"),
        text(1062, 115, "each class"),
        capsules(952, 246, 7),
        text(1020, 236, "concept layer", "name"),
        text(1020, 312, "length = presence"),
        arrow("M1010 328v62"),
        '<rect class="box" x="954" y="396" width="112" height="26" rx="13"/>',
        text(1010, 446, "global capsule", "name"),
        text(1010, 468, "softmax over concepts"),
        arrow("M948 409h-60"),
        '<path class="box" d="M880 388v42l-170 34v-110z"/>',
        text(795, 444 + 44, "decoder", "name"),
        text(795, 444 + 66, "4 deconvolutions"),
        arrow("M704 409h-40"),
        lesion(560, 359, 100, ' opacity=".7"'),
        text(610, 480, "reconstruction", "name"),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    TARGET.write_text(draw(), encoding="utf-8")
