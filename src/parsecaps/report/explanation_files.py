"""An explanation as a folder of files: overlays, trees, traversals, and its JSON document."""

import json
from pathlib import Path

from parsecaps.explain.explanation import Explanation
from parsecaps.files.writing import plain_name, write_text
from parsecaps.report.explanation_document import explanation_document
from parsecaps.report.pictures import overlay_png, png_file, traversal_picture
from parsecaps.report.tree_drawing import draw_tree


def write_explanation(explanation: Explanation, folder: Path) -> None:
    """Write an overlay of the diagnosis and of each concept, the trees, the traversals, and `explanation.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    image = explanation.image
    pictures = {"image": overlay_png(image, None)}
    pictures[f"diagnosis-{plain_name(explanation.diagnosis)}"] = overlay_png(image, explanation.class_map)
    for j, concept in enumerate(explanation.concepts, 1):
        pictures[f"concept-{j}-{plain_name(concept.name)}"] = overlay_png(image, concept.map)
    for strip in explanation.traversals:
        pictures[f"traversal-{plain_name(strip.name)}"] = png_file(traversal_picture(strip))
    for name, file in pictures.items():
        (folder / f"{name}.png").write_bytes(file)
    for tree in explanation.trees:
        kind = "diagnosis" if tree.about == "classes" else f"concept-{tree.index + 1}"
        write_text(folder / f"tree-{kind}-{plain_name(tree.name)}.svg", draw_tree(tree, image))
    document = explanation_document([explanation], title=explanation.name).to_dict()
    write_text(folder / "explanation.json", json.dumps(document, indent=2) + "\n")
