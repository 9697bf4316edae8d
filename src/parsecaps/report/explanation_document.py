"""The explanation document: all that a page, a server or another program needs of explained images, as JSON.

Its models are the source of `docs/explanation-schema.json`, and `page/src` draws it. Parse trees and the cost of
strictness are the package's own dataclasses.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from parsecaps.explain.case_memory import KnownCase
from parsecaps.explain.explanation import Explanation, Reasons
from parsecaps.explain.parse_tree import ParseTree
from parsecaps.explain.strict_tree import StrictCost
from parsecaps.explain.traversal import TraversalStrip
from parsecaps.nn.heads import Scale
from parsecaps.report.pictures import (
    MAP_SIDE,
    SHOWN_SIDE,
    base64_text,
    data_uri,
    map_levels,
    picture_file,
    picture_jpeg,
    traversal_picture,
)

VERSION: Literal[4] = 4  # 3 had no residual; 2 was a document for each image, with maps as PNG


Picture = Annotated[str, Field(pattern="^data:image/(png|jpeg);base64,[A-Za-z0-9+/=]*$")]  # inside of its address


_of_array = BeforeValidator(lambda values: np.asarray(values).tolist())
Numbers = Annotated[list[float], _of_array]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


P = TypeVar("P", bound=_Part)


class PlaceMap(_Part):
    """Where evidence was: `side` times `side` bytes in base64, row by row; 255 stands for the value `max`."""

    side: int = Field(ge=1, le=MAP_SIDE)
    levels: str
    max: float


class Known(_Part):
    """A training case: its label, None where it is not known, and what the model says of it.

    `row` and `name`, its file, are left out of a page, `picture` of anything else.
    """

    row: int | None = None
    name: str | None = None
    label: str | None
    diagnosis: str
    probability: float
    picture: Picture | None


class KnownPrototype(Known):
    """A training case that shows a concept, how present it is, and whether it is there in truth."""

    presence: float
    has: bool | None


class KnownNeighbour(Known):
    """A training case that is like the image; distance 0 is the same, 2 the most there can be."""

    distance: float


class ConceptPrototypes(_Part):
    """The training cases that show a concept most."""

    concept: str
    cases: list[KnownPrototype]


class SeenConceptPart(_Part):
    """A concept in one image: how present it is, whether that counts as seen, what is known of it, and where it is."""

    name: str
    presence: float
    seen: bool
    truth: bool | None
    map: PlaceMap | None


class CounterfactualPart(_Part):
    """The fewest concepts whose change (to present or absent) gives another diagnosis, and what follows."""

    changes: dict[str, bool]
    diagnosis: str
    was: str
    presence: Numbers
    before: Numbers
    after: Numbers


class ReasonsPart(_Part):
    """Presences (concepts), what each adds to each logit (classes, concepts), and what would change the diagnosis."""

    presence: Numbers
    contributions: Annotated[list[list[float]], _of_array]
    counterfactual: CounterfactualPart | None
    sentence: str


class StrictPart(_Part):
    """What the ordinary network says, where the explanation is of the strict one; `lines` say it in words."""

    diagnosis: str
    probability: float
    seen: list[str]
    adjusted: bool
    cost: StrictCost | None
    lines: list[str]


class TraversalPart(_Part):
    """What the decoder draws as a number of the global capsule takes some values; the first picture is for none."""

    name: str
    value: float
    values: list[float]
    picture: Picture
    sentence: str


class ReasoningPart(_Part):
    """How concepts add up to a diagnosis: `softmax((weight @ values + bias) / temperature)`.

    The values are the presences, their logits, or their artanh where the `scale` is "activation"; for the last two,
    presences stay 1e-7 away from 0 and 1. A concept set by hand takes its number of `present` or `absent`, one above
    its `threshold` counts as seen, and of those with the same `group` one can be present.
    """

    classes: list[str]
    concepts: list[str]
    temperature: float
    weight: list[list[float]]
    bias: list[float]
    present: list[float]
    absent: list[float]
    threshold: list[float]
    group: list[int]
    scale: Scale


class CasePart(_Part):
    """One image, explained.

    `picture` is the prepared image, None where it was left out, and `size` the pixels of its side, in which regions of
    trees are given. `possible` and `abstain` are None without a risk, `truth` where it is not known, `method` and maps
    where there are no maps. `residual` is the largest part of a target's change that its shares miss, None where there
    are no shares. `choice` says how a context chose the evidence, None without one. `reasoning` is there where it is of
    this image alone, and comes before the model's.
    """

    name: str
    picture: Picture | None
    size: int
    diagnosis: str
    probabilities: dict[str, float]
    possible: list[str] | None
    abstain: bool | None
    truth: str | None
    method: str | None
    class_map: PlaceMap | None
    residual: float | None
    choice: str | None
    concepts: list[SeenConceptPart]
    trees: list[ParseTree]
    similar: list[KnownNeighbour]
    reasons: ReasonsPart | None
    reasoning: ReasoningPart | None
    strict: StrictPart | None
    traversals: list[TraversalPart]
    notes: list[str]


class ModelPart(_Part):
    """The model that all cases are of; `reasoning` where it decides by its concepts alone, alike in all images."""

    kind: str
    classes: list[str]
    concepts: list[str]
    image_size: int
    reasoning: ReasoningPart | None


class ExplanationDocument(_Part):
    """Explained images of one model, with the training cases that show its concepts, and lines about unread images."""

    version: Literal[4]
    title: str
    model: ModelPart
    cases: list[CasePart]
    prototypes: list[ConceptPrototypes]
    errors: list[str]

    def to_dict(self) -> dict[str, Any]:
        return self.model_dump(mode="json")


def explanation_document(
    explanations: Sequence[Explanation],
    *,
    title: str = "",
    errors: Sequence[str] = (),
    pictures: bool = False,
    names: bool = True,
) -> ExplanationDocument:
    """The document of cases of one model; `errors` are lines about images that could not be read.

    With `pictures` it is for a page: it holds the images and pictures of known cases instead of their file names, and
    maps have at most 32 pixels a side instead of 64. Without `names` it has no file names of known cases either.
    Patients of known cases are never in it.
    """
    if not explanations:
        raise ValueError("there are no cases to show; explain at least one image")
    first = explanations[0]
    files = {row: file for each in explanations for row, file in each.pictures.items()}

    def known(case: KnownCase) -> dict[str, Any]:
        picture = data_uri(files[case.row]) if pictures and case.row in files else None
        said = {"label": case.label, "diagnosis": case.diagnosis, "probability": case.probability, "picture": picture}
        return {**said, "row": case.row, "name": case.name} if names and not pictures else said

    return ExplanationDocument(
        version=VERSION,
        title=title,
        model=ModelPart(
            kind=first.model,
            classes=list(first.probabilities),
            concepts=[each.name for each in first.concepts],
            image_size=first.image.shape[-1],
            reasoning=_reasoning(first.reasons, of_model=True),
        ),
        cases=[_case(each, known, pictures) for each in explanations],
        prototypes=[
            ConceptPrototypes(
                concept=concept.name,
                cases=[
                    KnownPrototype(**known(each.case), presence=each.presence, has=each.truth)
                    for each in concept.prototypes
                ],
            )
            for concept in first.concepts
            if concept.prototypes
        ],
        errors=list(errors),
    )


def _case(explanation: Explanation, known: Callable[[KnownCase], dict[str, Any]], pictures: bool) -> CasePart:
    side = SHOWN_SIDE if pictures else MAP_SIDE
    return _part(
        CasePart,
        explanation,
        picture=data_uri(picture_jpeg(explanation.image)) if pictures else None,
        size=explanation.image.shape[-1],
        class_map=_map(explanation.class_map, side),
        concepts=[_part(SeenConceptPart, each, map=_map(each.map, side)) for each in explanation.concepts],
        similar=[KnownNeighbour(**known(each.case), distance=each.distance) for each in explanation.similar],
        reasons=explanation.reasons and _reasons(explanation.reasons),
        reasoning=_reasoning(explanation.reasons, of_model=False),
        strict=explanation.strict and _part(StrictPart, explanation.strict, lines=explanation.strict_lines),
        traversals=[_traversal(each, small=pictures) for each in explanation.traversals],
    )


def _part(kind: type[P], result: object, **fields: Any) -> P:
    """A part with the fields of a result, except for those that are given."""
    return kind(**{name: getattr(result, name) for name in kind.model_fields if name not in fields}, **fields)


def _map(found: np.ndarray, side: int) -> PlaceMap:
    levels, highest = map_levels(found, side)
    return PlaceMap(side=len(levels), levels=base64_text(levels.tobytes()), max=highest)


def _reasons(reasons: Reasons) -> ReasonsPart:
    flip = reasons.flip and _part(CounterfactualPart, reasons.flip)
    return _part(ReasonsPart, reasons, counterfactual=flip, sentence=reasons.sentence())


def _reasoning(reasons: Reasons | None, *, of_model: bool) -> ReasoningPart | None:
    if reasons is None or reasons.of_model != of_model:
        return None
    return ReasoningPart(**reasons.reasoning.as_dict())


def _traversal(strip: TraversalStrip, *, small: bool) -> TraversalPart:
    file = picture_file(traversal_picture(strip), 80 if small else None)
    return _part(TraversalPart, strip, picture=data_uri(file), sentence=strip.sentence())
