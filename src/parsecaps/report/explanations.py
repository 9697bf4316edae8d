"""Explanations for a terminal, and as files: overlays, traversals, a JSON document, and parse trees as drawings."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from parsecaps.explain.explanation import Explanation
from parsecaps.files.writing import plain_name, write_text
from parsecaps.report.draw import terminal_table
from parsecaps.report.explanation_document import explanation_document
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, overlay_picture, picture_file, picture_of, traversal_picture
from parsecaps.types import Grid

if TYPE_CHECKING:
    from rich.table import Table

    from parsecaps.explain.parse_tree import ParseTree, TreeNode

FEW = 5  # images that get a table each
_WIDTH, _MARGIN, _LABELS = 540, 14, 114
_TOP, _ROW, _IMAGE = 64, 74, 256


def explanation_summary(explanations: Sequence[Explanation]) -> "Iterator[Table | str]":
    """Tables, each with the lines that belong to it, or one line for each where there are more than a few."""
    for each in explanations:
        if len(explanations) > FEW:
            seen = sorted((concept for concept in each.concepts if concept.seen), key=lambda concept: -concept.presence)
            listed = ", ".join(concept.name for concept in seen) or "no concept"
            yield _answer(each) + (f"; sees {listed}" if each.concepts else "")
            continue
        yield terminal_table(_concepts(each), framed=True) if each.concepts else _answer(each)
        if each.reasons is not None:
            yield each.reasons.sentence()
        yield from each.strict_lines


def _concepts(explanation: Explanation) -> Grid:
    """The concepts, the most present first, and what each adds to the diagnosis where the model decides by them."""
    rows = [[each.name, f"{each.presence:.2f}", "yes" if each.seen else "no"] for each in explanation.concepts]
    columns = ["concept", "presence", "seen"]
    if explanation.reasons is not None:
        columns.append(f"to {explanation.diagnosis}")
        best = list(explanation.probabilities).index(explanation.diagnosis)
        for row, adds in zip(rows, explanation.reasons.contributions[best], strict=True):
            row.append(f"{adds:+.2f}")
    order = sorted(range(len(rows)), key=lambda j: -explanation.concepts[j].presence)
    return Grid(_answer(explanation), columns, [rows[j] for j in order], left=(0, 2))


def _answer(explanation: Explanation) -> str:
    answer = f"{explanation.name}: {explanation.diagnosis} {explanation.probability:.1%}"
    if explanation.abstain:
        answer += f"; abstains: {' or '.join(explanation.possible or ['nothing'])} cannot be ruled out"
    return answer if explanation.truth is None else f"{answer} (known to be {explanation.truth})"


def write_explanation(explanation: Explanation, folder: Path) -> None:
    """Write an overlay of the diagnosis and of each concept, the trees, the traversals, and `explanation.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    image = explanation.image
    maps = {"image": None, f"diagnosis-{plain_name(explanation.diagnosis)}": explanation.class_map}
    maps |= {f"concept-{j}-{plain_name(each.name)}": each.map for j, each in enumerate(explanation.concepts, 1)}
    pictures = {name: overlay_picture(image, found) for name, found in maps.items()}
    pictures |= {f"traversal-{plain_name(each.name)}": traversal_picture(each) for each in explanation.traversals}
    for name, picture in pictures.items():
        (folder / f"{name}.png").write_bytes(picture_file(picture))
    for tree in explanation.trees:
        kind = "diagnosis" if tree.about == "classes" else f"concept-{tree.index + 1}"
        write_text(folder / f"tree-{kind}-{plain_name(tree.name)}.svg", draw_tree(tree, image))
    document = explanation_document([explanation], title=explanation.name).to_dict()
    write_text(folder / "explanation.json", json.dumps(document, indent=2) + "\n")


def draw_tree(tree: "ParseTree", image: Tensor | None = None) -> str:
    """The SVG of a parse tree, above the prepared image (channels, size, size) in [0, 1] or its empty frame."""
    names = dict(sorted({node.level: node.name for node in tree.nodes}.items(), reverse=True))
    rows = {level: _TOP + _ROW * (i + 1) for i, level in enumerate(names)}
    across = _positions(tree)
    return render(
        "tree.svg",
        tree=tree,
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
