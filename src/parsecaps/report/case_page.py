"""The page of `parsecaps report`: one case or a series, each with its maps, trees, known cases and reasons."""

from collections.abc import Sequence
from typing import Any

from parsecaps.explain.explanation import Explanation, Reasons, SeenConcept
from parsecaps.explain.parse_tree import ParseTree
from parsecaps.explain.thumbnails import jpeg_uri
from parsecaps.report.pages import render
from parsecaps.report.pictures import map_png, picture_jpeg, png_as_jpeg, png_uri

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
    first = explanations[0]
    cases = [_case(number, each) for number, each in enumerate(explanations, 1)]
    return render(
        "cases.html",
        title=title,
        cases=cases,
        classes=list(first.probabilities),
        method=METHOD_NAMES[first.method],
        prototypes=[_prototypes(each, first.pictures) for each in first.concepts if each.prototypes],
        notes=list(dict.fromkeys(note for each in explanations for note in each.notes)),
        errors=errors,
        known=any(each.truth is not None for each in explanations),
        abstaining=any(each.abstain for each in explanations),
        reasoning=None if first.reasons is None else first.reasons.reasoning.as_dict(),
        presences=[[each.presence for each in case.concepts] for case in explanations],
    )


def _case(number: int, told: Explanation) -> dict[str, Any]:
    targets = [_target("diagnosis", f"reasons for {told.diagnosis}", told.class_map)]
    order = sorted(range(len(told.concepts)), key=lambda j: -told.concepts[j].presence)
    targets += [_target(f"concept-{j}", told.concepts[j].name, told.concepts[j].map, told.concepts[j]) for j in order]
    return {
        "number": number,
        "told": told,
        "picture": jpeg_uri(picture_jpeg(told.image)),
        "size": told.image.shape[-1],
        "falling": sorted(told.probabilities.items(), key=lambda item: -item[1]),
        "right": None if told.truth is None else told.truth == told.diagnosis,
        "targets": targets,
        "trees": [_tree(number, tree) for tree in told.trees],
        "similar": [(each, _picture(told.pictures, each.case.row)) for each in told.similar],
        "reasons": None if told.reasons is None else _reasons(told, told.reasons),
        "traversals": [(each, jpeg_uri(png_as_jpeg(each.png))) for each in told.traversals],
    }


def _target(key: str, name: str, found: Any, concept: SeenConcept | None = None) -> dict[str, Any]:
    return {"key": key, "name": name, "map": png_uri(map_png(found)), "concept": concept, "empty": not found.any()}


def _tree(number: int, tree: ParseTree) -> dict[str, Any]:
    """The drawing with ids of its own; the page lays the case's picture into it, so that it is stored once."""
    ids = f"pt-{tree.about}-{tree.index}-"
    key = "diagnosis" if tree.about == "classes" else f"concept-{tree.index}"
    return {"key": key, "tree": tree, "svg": tree.to_svg().replace(ids, f"case-{number}-{ids}")}


def _prototypes(concept: SeenConcept, pictures: dict[int, bytes]) -> dict[str, Any]:
    return {"name": concept.name, "cases": [(each, _picture(pictures, each.case.row)) for each in concept.prototypes]}


def _picture(pictures: dict[int, bytes], row: int) -> str:
    return jpeg_uri(pictures[row]) if row in pictures else ""


def _reasons(told: Explanation, reasons: Reasons) -> dict[str, Any]:
    """The likeliest classes as columns, the concepts as rows, those that matter most to the diagnosis first."""
    classes = list(told.probabilities)
    columns = sorted(range(len(classes)), key=lambda k: -told.probabilities[classes[k]])[:_COLUMNS]
    rows = sorted(range(len(told.concepts)), key=lambda j: -abs(float(reasons.contributions[columns[0], j])))
    return {
        "columns": [(k, classes[k]) for k in columns],
        "rows": [(j, told.concepts[j]) for j in rows],
        "sentence": reasons.sentence(),
    }
