"""Explanations for a server: those of `parsecaps explain`, without what may name a patient."""

from typing import Any, TypeVar

from parsecaps.explain.explanation import Explanation
from parsecaps.model import Model
from parsecaps.report.explanation_document import (
    VERSION,
    ExplanationDocument,
    Known,
    ModelPart,
    ReasoningPart,
    explanation_document,
)
from parsecaps.serve.documents import ExplainQuestion
from parsecaps.serve.pictures import Picture
from parsecaps.serve.uploads import Upload

K = TypeVar("K", bound=Known)


def explain(model: Model, picture: Picture, upload: Upload, how: ExplainQuestion, risk: float | None) -> Explanation:
    """One image, explained under the name that was sent."""
    name, frame = upload.name or f"image {picture.upload + 1}", picture.image.frame
    return model.explain(
        upload.path,
        frame=frame,
        name=name if frame is None else f"{name}#{frame}",
        risk=None if how.strict else risk,  # it is promised for the ordinary network only
        method=how.method,
        trees=how.trees,
        strict=how.strict,
        traversals=how.traversals,
    )


def document(model: Model, cases: list[Explanation], errors: list[str], how: ExplainQuestion) -> dict[str, Any]:
    """The explanation document of some cases, or of none; training cases have no file names in it."""
    if not cases:
        return _empty(model, errors).to_dict()
    title = cases[0].name if len(cases) == 1 else f"{len(cases):,} cases"
    found = explanation_document(cases, title=title, errors=errors, pictures=how.pictures)
    prototypes = [each.model_copy(update={"cases": _unnamed(each.cases)}) for each in found.prototypes]
    unnamed = [each.model_copy(update={"similar": _unnamed(each.similar)}) for each in found.cases]
    return found.model_copy(update={"prototypes": prototypes, "cases": unnamed}).to_dict()


def _unnamed(known: list[K]) -> list[K]:
    return [each.model_copy(update={"row": None, "name": None}) for each in known]


def _empty(model: Model, errors: list[str]) -> ExplanationDocument:
    reasoning = model.reasoning
    part = ModelPart(
        kind=type(model.network).__name__,
        classes=list(model.classes),
        concepts=list(model.concepts),
        image_size=model.preparation.size,
        reasoning=None if reasoning is None else ReasoningPart(**reasoning.as_dict()),
    )
    return ExplanationDocument(version=VERSION, title="", model=part, cases=[], prototypes=[], errors=errors)
