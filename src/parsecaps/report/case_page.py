"""Pages of explained cases, each with its maps, trees, known cases and reasons: of `parsecaps explain` and the demo."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from parsecaps.explain.explanation import Explanation, Reasons, SeenConcept
from parsecaps.explain.parse_tree import ParseTree
from parsecaps.metrics import Scores, find_metric
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, jpeg_file, map_png, picture_jpeg, traversal_picture
from parsecaps.report.tree_drawing import draw_tree
from parsecaps.run import Run

METHOD_NAMES = {
    "routes": "the routes of the network",
    "grad-cam": "Grad-CAM",
    "integrated-gradients": "integrated gradients",
    "occlusion": "occlusion",
}
_COLUMNS = 3  # classes beside each other in the table of contributions


def case_page(explanations: Sequence[Explanation], *, title: str = "Cases", errors: Sequence[str] = ()) -> str:
    """The whole page as HTML. All cases are of one model; `errors` are lines about images that could not be read."""
    if not explanations:
        raise ValueError("there are no cases to show; explain at least one image")
    return render("cases.html", title=title, **_content(explanations, errors))


def demo_page(run: Run, scores: Scores, explanations: Sequence[Explanation], folder: str) -> str:
    """The page of `parsecaps demo`: what was reached, and some unseen cases; `folder` is that of the run."""
    minutes, seconds = divmod(round(run.about["seconds"]), 60)
    return render(
        "demo.html",
        scores=scores,
        find_metric=find_metric,
        run=folder,
        model=run.folder,
        seconds=f"{minutes} minutes {seconds} seconds" if minutes else f"{seconds} seconds",
        curves=data_uri(run.curves_file.read_bytes()),
        **_content(explanations, ()),
    )


def _content(explanations: Sequence[Explanation], errors: Sequence[str]) -> dict[str, Any]:
    """What case_views.html shows."""
    first = explanations[0]
    return {
        "cases": [_view(number, each) for number, each in enumerate(explanations, 1)],
        "classes": list(first.probabilities),
        "method": METHOD_NAMES[first.method],
        "prototypes": [_prototypes(each, first.pictures) for each in first.concepts if each.prototypes],
        "notes": list(dict.fromkeys(note for each in explanations for note in each.notes)),
        "errors": errors,
        "known": any(each.truth is not None for each in explanations),
        "abstaining": any(each.abstain for each in explanations),
        "reasoning": None if first.reasons is None else first.reasons.reasoning.as_dict(),
        "presences": [[each.presence for each in case.concepts] for case in explanations],
    }


def _view(number: int, explanation: Explanation) -> dict[str, Any]:
    concepts, pictures = explanation.concepts, explanation.pictures
    targets = [_target("diagnosis", f"reasons for {explanation.diagnosis}", explanation.class_map)]
    order = sorted(range(len(concepts)), key=lambda j: -concepts[j].presence)
    targets += [_target(f"concept-{j}", concepts[j].name, concepts[j].map, concepts[j]) for j in order]
    return {
        "number": number,
        "explanation": explanation,
        "picture": data_uri(picture_jpeg(explanation.image)),
        "size": explanation.image.shape[-1],
        "falling": sorted(explanation.probabilities.items(), key=lambda item: -item[1]),
        "right": None if explanation.truth is None else explanation.truth == explanation.diagnosis,
        "targets": targets,
        "trees": [_tree(number, tree) for tree in explanation.trees],
        "similar": [(each, _picture(pictures, each.case.row)) for each in explanation.similar],
        "reasons": None if explanation.reasons is None else _reasons(explanation, explanation.reasons),
        "traversals": [
            (each, data_uri(jpeg_file(traversal_picture(each), quality=80))) for each in explanation.traversals
        ],
    }


def _target(key: str, name: str, found: np.ndarray, concept: SeenConcept | None = None) -> dict[str, Any]:
    return {"key": key, "name": name, "map": data_uri(map_png(found)), "concept": concept, "empty": not found.any()}


def _tree(number: int, tree: ParseTree) -> dict[str, Any]:
    """The drawing with ids of its own; the page lays the case's picture into it, so that it is stored once."""
    ids = f"pt-{tree.about}-{tree.index}-"
    key = "diagnosis" if tree.about == "classes" else f"concept-{tree.index}"
    return {"key": key, "tree": tree, "svg": draw_tree(tree).replace(ids, f"case-{number}-{ids}")}


def _prototypes(concept: SeenConcept, pictures: dict[int, bytes]) -> dict[str, Any]:
    return {"name": concept.name, "cases": [(each, _picture(pictures, each.case.row)) for each in concept.prototypes]}


def _picture(pictures: dict[int, bytes], row: int) -> str:
    return data_uri(pictures[row]) if row in pictures else ""


def _reasons(explanation: Explanation, reasons: Reasons) -> dict[str, Any]:
    """The likeliest classes as columns, the concepts as rows, those that matter most to the diagnosis first."""
    classes, concepts = list(explanation.probabilities), explanation.concepts
    columns = sorted(range(len(classes)), key=lambda k: -explanation.probabilities[classes[k]])[:_COLUMNS]
    rows = sorted(range(len(concepts)), key=lambda j: -abs(float(reasons.contributions[columns[0], j])))
    return {
        "columns": [(k, classes[k]) for k in columns],
        "rows": [(j, concepts[j]) for j in rows],
        "sentence": reasons.sentence(),
    }
