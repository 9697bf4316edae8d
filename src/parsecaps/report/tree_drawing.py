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
    levels = sorted({node.level for node in tree.nodes}, reverse=True)
    rows = {level: _TOP + _ROW * (i + 1) for i, level in enumerate(levels)}
    image_top = _TOP + _ROW * (len(levels) + 1)
    image_left = _LABELS + (_WIDTH - _LABELS - _MARGIN - _IMAGE) / 2
    across = _positions(tree)
    at = {node.id: (across[node.id], rows[node.level]) for node in tree.nodes}
    at["root"] = (across["root"], _TOP)
    strongest = max((node.share for node in tree.nodes), default=1)
    parts = [
        *_heading(tree),
        *(_route(at[node.parent], at[node.id], node.share / strongest) for node in tree.nodes),
        *_labels(tree, rows),
        *_picture(image, image_left, image_top),
        *(_place(tree, node, at[node.id], image_left, image_top) for node in tree.nodes if node.level == 0),
        f'<circle class="capsule" cx="{at["root"][0]:.1f}" cy="{_TOP}" r="11"/>',
        *(_capsule(node, at[node.id]) for node in tree.nodes),
    ]
    height = image_top + _IMAGE + _FOOT
    key = f"pt-{tree.about}-{tree.index}"
    start = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="pt" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-labelledby="{key}-title {key}-desc">'
    )
    described = f'<title id="{key}-title">Parse tree: {escape(tree.name)}</title>{_description(tree, key)}'
    return "\n".join([start, described, f"<style>\n{template_text('tree.css')}</style>", *parts, "</svg>"]) + "\n"


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


def _description(tree: "ParseTree", key: str) -> str:
    leaves = sum(node.level == 0 for node in tree.nodes)
    kind = "presence" if tree.about == "concepts" else "logit"
    text = (
        f"{tree.name}, {kind} {tree.value:.2f}. The {'strict tree' if tree.strict else 'routes'} shown "
        f"{'carries' if tree.strict else 'carry'} {tree.share:.0%} of the evidence, from {leaves} regions of the image "
        f"through {len(tree.nodes) - leaves} groups of capsules."
    )
    return f'<desc id="{key}-desc">{escape(text)}</desc>'


def _heading(tree: "ParseTree") -> list[str]:
    kind = "presence" if tree.about == "concepts" else "logit"
    shown = f"{kind} {tree.value:.2f} ({tree.neutral:.2f} for an empty picture), {tree.share:.0%} of the evidence shown"
    return [
        f'<text class="head" x="{_MARGIN}" y="24">{escape(tree.name)}{" (strict tree)" if tree.strict else ""}</text>',
        f'<text class="faint" x="{_MARGIN}" y="42">{shown}</text>',
    ]


def _labels(tree: "ParseTree", rows: dict[int, int]) -> list[str]:
    names = {node.level: node.name for node in tree.nodes}
    return [f'<text class="faint" x="{_MARGIN}" y="{y + 4}">{names[level]}</text>' for level, y in rows.items()]


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


def _picture(image: Tensor | None, left: float, top: float) -> list[str]:
    frame = f'x="{left:.1f}" y="{top}" width="{_IMAGE}" height="{_IMAGE}"'
    drawn = [f'<rect class="frame" {frame}/>']
    if image is not None:
        drawn.insert(0, f'<image {frame} href="{data_uri(png_file(picture_of(image)))}" preserveAspectRatio="none"/>')
    return drawn


def _place(tree: "ParseTree", node: "TreeNode", at: tuple[float, float], left: float, top: float) -> str:
    scale = _IMAGE / tree.image_size
    y0, x0, y1, x1 = (edge * scale for edge in node.place)
    most = max(other.share for other in tree.nodes if other.level == 0)
    box = f'x="{left + x0:.1f}" y="{top + y0:.1f}" width="{x1 - x0:.1f}" height="{y1 - y0:.1f}"'
    line = f"M{at[0]:.1f} {at[1]}L{left + (x0 + x1) / 2:.1f} {top + y0:.1f}"
    opacity = 0.15 + 0.4 * node.share / most
    return f'<path class="fall" d="{line}"/><rect class="place" {box} fill-opacity="{opacity:.2f}"/>'
