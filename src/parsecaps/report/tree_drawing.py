"""A parse tree as a drawing: layers from the diagnosis or concept at the top to the image at the bottom."""

from html import escape
from typing import TYPE_CHECKING

from torch import Tensor

from parsecaps.report.pages import template_text
from parsecaps.report.pictures import data_uri, picture_of, png_file

if TYPE_CHECKING:
    from parsecaps.explain.parse_tree import ParseTree, TreeNode

_WIDTH, _MARGIN, _LABELS = 540, 14, 114
_TOP, _ROW, _IMAGE, _FOOT = 64, 74, 256, 24


def draw_tree(tree: "ParseTree", image: Tensor | None = None) -> str:
    """The SVG of a parse tree, above the prepared image (channels, size, size) in [0, 1] or its empty frame."""
    names = dict(sorted({node.level: node.name for node in tree.nodes}.items(), reverse=True))
    rows = {level: _TOP + _ROW * (i + 1) for i, level in enumerate(names)}
    top = _TOP + _ROW * (len(rows) + 1)
    left = _LABELS + (_WIDTH - _LABELS - _MARGIN - _IMAGE) / 2
    across = _positions(tree)
    at = {node.id: (across[node.id], rows[node.level]) for node in tree.nodes} | {"root": (across["root"], _TOP)}
    leaves = [node for node in tree.nodes if node.level == 0]
    strongest = max((node.share for node in tree.nodes), default=1)
    name, key = escape(tree.name), f"pt-{tree.about}-{tree.index}"
    said = f"{'presence' if tree.about == 'concepts' else 'logit'} {tree.value:.2f}"
    described = (
        f"{name}, {said}. The {'strict tree shown carries' if tree.strict else 'routes shown carry'} {tree.share:.0%} "
        f"of the evidence, from {len(leaves)} regions of the image through {len(tree.nodes) - len(leaves)} groups of "
        "capsules."
    )
    shown = f"{said} ({tree.neutral:.2f} for an empty picture), {tree.share:.0%} of the evidence shown"
    frame = f'x="{left:.1f}" y="{top}" width="{_IMAGE}" height="{_IMAGE}"'
    address = None if image is None else data_uri(png_file(picture_of(image)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pt" viewBox="0 0 {_WIDTH} {top + _IMAGE + _FOOT}" role="img" '
        f'aria-labelledby="{key}-title {key}-desc">',
        f'<title id="{key}-title">Parse tree: {name}</title><desc id="{key}-desc">{described}</desc>',
        f"<style>\n{template_text('tree.css')}</style>",
        f'<text class="head" x="{_MARGIN}" y="24">{name}{" (strict tree)" if tree.strict else ""}</text>',
        f'<text class="faint" x="{_MARGIN}" y="42">{shown}</text>',
        *(_route(at[node.parent], at[node.id], node.share / strongest) for node in tree.nodes),
        *(f'<text class="faint" x="{_MARGIN}" y="{y + 4}">{names[level]}</text>' for level, y in rows.items()),
        *([] if address is None else [f'<image {frame} href="{address}" preserveAspectRatio="none"/>']),
        f'<rect class="frame" {frame}/>',
        *(_place(tree, node, at[node.id], left, top) for node in leaves),
        f'<circle class="capsule" cx="{at["root"][0]:.1f}" cy="{_TOP}" r="11"/>',
        *(_capsule(node, at[node.id]) for node in tree.nodes),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _positions(tree: "ParseTree") -> dict[str, float]:
    """Where each node stands across: leaves side by side, others above the middle of their children.

    Children stand in the order in which they lie in the image from left to right, and no routes cross.
    """
    children: dict[str, list[TreeNode]] = {"root": []}
    for node in sorted(tree.nodes, key=lambda node: node.region[1] + node.region[3]):
        children.setdefault(node.parent, []).append(node)
    leaves = sum(node.level == 0 for node in tree.nodes)
    room = (_WIDTH - _LABELS - _MARGIN) / max(leaves, 1)
    across: dict[str, float] = {}
    placed = 0

    def place(key: str) -> float:
        nonlocal placed
        below = [place(child.id) for child in children.get(key, [])]
        if not below:
            placed += 1
        across[key] = (below[0] + below[-1]) / 2 if below else _LABELS + room * (placed - 0.5)
        return across[key]

    place("root")
    return across


def _route(parent: tuple[float, float], child: tuple[float, float], strength: float) -> str:
    (x0, y0), (x1, y1) = parent, child
    half = (y0 + y1) / 2
    line = f"M{x0:.1f} {y0:.1f}C{x0:.1f} {half:.1f} {x1:.1f} {half:.1f} {x1:.1f} {y1:.1f}"
    return f'<path class="route" d="{line}" stroke-width="{0.8 + 9 * strength:.2f}"/>'


def _capsule(node: "TreeNode", at: tuple[float, float]) -> str:
    kind = "leaf" if node.level == 0 else "capsule"
    top, left, bottom, right = node.region
    many = len(node.capsules) > 1
    where = f"{len(node.capsules)} capsules around" if many else "the capsule at"
    text = (
        f"{node.name}, {where} row {node.row + 1}, column {node.column + 1}: {node.share:.1%} of the evidence, "
        f"activity {node.activity:.2f}; it rests on rows {top} to {bottom}, columns {left} to {right}"
    )
    radius = 3.5 + 9 * node.share**0.5
    region = " ".join(map(str, node.region))
    drawn = f'class="{kind}" cx="{at[0]:.1f}" cy="{at[1]}" r="{radius:.1f}" data-region="{region}"'
    return f"<circle {drawn}><title>{text}</title></circle>"


def _place(tree: "ParseTree", node: "TreeNode", at: tuple[float, float], left: float, top: float) -> str:
    scale = _IMAGE / tree.image_size
    y0, x0, y1, x1 = (edge * scale for edge in node.place)
    most = max(other.share for other in tree.nodes if other.level == 0)
    box = f'x="{left + x0:.1f}" y="{top + y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}"'
    line = f"M{at[0]:.1f} {at[1]}L{left + (x0 + x1) / 2:.1f} {top + y0:.1f}"
    opacity = 0.15 + 0.4 * node.share / most
    return f'<path class="fall" d="{line}"/><rect class="place" {box} fill-opacity="{opacity:.2f}"/>'
