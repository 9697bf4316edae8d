"""An explanation as files: its JSON document, and a folder with that, overlays, trees and traversals."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.data.files import plain_name, write_text
from parsecaps.explain.case_memory import KnownCase
from parsecaps.explain.explanation import Explanation, Reasons
from parsecaps.report.pictures import base64_text, grey_png, overlay_png, png_file, traversal_picture
from parsecaps.report.tree_drawing import draw_tree

VERSION = 2  # 1 knew neither strict trees nor traversals


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Plain values for JSON; `version` changes when the fields do.

    A map is a grey PNG of at most 64 pixels in base64, with the value `max` that its 255 stands for. Pictures and
    patients of known cases are left out.
    """
    return {
        "version": VERSION,
        "name": explanation.name,
        "diagnosis": explanation.diagnosis,
        "probabilities": explanation.probabilities,
        "possible": explanation.possible,
        "abstain": explanation.abstain,
        "truth": explanation.truth,
        "method": explanation.method,
        "class_map": _map(explanation.class_map),
        "concepts": [
            {
                "name": each.name,
                "presence": each.presence,
                "seen": each.seen,
                "truth": each.truth,
                "map": _map(each.map),
                "prototypes": [{**_case(p.case), "presence": p.presence, "has": p.truth} for p in each.prototypes],
            }
            for each in explanation.concepts
        ],
        "trees": [tree.to_dict() for tree in explanation.trees],
        "similar": [{**_case(each.case), "distance": each.distance} for each in explanation.similar],
        "reasons": None if explanation.reasons is None else _reasons(explanation.reasons),
        "strict": None if explanation.strict is None else asdict(explanation.strict),
        "traversals": [
            {
                "name": each.name,
                "value": each.value,
                "values": list(each.values),
                "png": base64_text(png_file(traversal_picture(each))),
            }
            for each in explanation.traversals
        ],
        "notes": list(explanation.notes),
    }


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
    write_text(folder / "explanation.json", json.dumps(explanation_document(explanation), indent=2) + "\n")


def _map(found: np.ndarray) -> dict[str, Any]:
    return {"png": base64_text(grey_png(found)), "max": float(found.max())}


def _case(case: KnownCase) -> dict[str, Any]:
    return {key: value for key, value in case._asdict().items() if key != "patient"}


def _reasons(reasons: Reasons) -> dict[str, Any]:
    flip = None
    if reasons.flip is not None:
        flip = {key: _plain(value) for key, value in asdict(reasons.flip).items()}
    return {
        "reasoning": reasons.reasoning.as_dict(),
        "presence": reasons.presence.tolist(),
        "contributions": reasons.contributions.tolist(),
        "counterfactual": flip,
        "sentence": reasons.sentence(),
    }


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value
