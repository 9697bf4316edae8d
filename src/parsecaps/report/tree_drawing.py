"""A parse tree as a drawing: layers from the diagnosis or concept at the top to the image at the bottom."""

from typing import TYPE_CHECKING

from torch import Tensor

from parsecaps.report.pages import render, template_text
from parsecaps.report.pictures import data_uri, picture_file, picture_of

if TYPE_CHECKING:
    from parsecaps.explain.parse_tree import ParseTree, TreeNode

_WIDTH, _MARGIN, _LABELS = 540, 14, 114
_TOP, _ROW, _IMAGE = 64, 74, 256


def draw_tree(tree: "ParseTree", image: Tensor | None = None) -> str:
    """The SVG of a parse tree, above the prepared image (channels, size, size) in [0, 1] or its empty frame."""
    names = dict(sorted({node.level: node.name for node in tree.nodes}.items(), reverse=True))
    rows = {level: _TOP + _ROW * (i + 1) for i, level in enumerate(names)}
    across = _positions(tree)
    return render(
        "tree.svg",
        tree=tree,
        style=template_text("tree.css"),
        names=names,
        rows=rows,
        at={"root": (across["root"], _TOP)} | {node.id: (across[node.id], rows[node.level]) for node in tree.nodes},
        leaves=[node for node in tree.nodes if node.level == 0],
        strongest=max((node.share for node in tree.nodes), default=1),
        address=None if image is None else data_uri(picture_file(picture_of(image))),
        **{"width": _WIDTH, "margin": _MARGIN, "side": _IMAGE},
        left=_LABELS + (_WIDTH - _LABELS - _MARGIN - _IMAGE) / 2,
        top=_TOP + _ROW * (len(rows) + 1),
    )


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
