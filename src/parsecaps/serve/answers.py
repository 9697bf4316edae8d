"""From the files of a request to what is said of their images: read by a reader, then a result or an explanation.

Explanations are those of `parsecaps explain`, without what may name a patient.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

from torch import Tensor

from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import prepare_image
from parsecaps.explain.explanation import Explanation
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile, find_files
from parsecaps.report.explanation_document import (
    VERSION,
    ExplanationDocument,
    Known,
    ModelPart,
    ReasoningPart,
    explanation_document,
)
from parsecaps.serve.documents import ExplainQuestion
from parsecaps.serve.uploads import Upload

K = TypeVar("K", bound=Known)
_LIBRARY_WORDS = re.compile(r"(is a damaged DICOM) \(.*\)(?=; )", re.DOTALL)


@dataclass(frozen=True, eq=False)
class Picture:
    """An image of a request: the number of its file, and its levels (channels, size, size) as uint8 once it is read."""

    upload: int
    image: ImageFile
    error: str = ""
    levels: Tensor | None = None


def look(number: int, upload: Upload, most: int) -> list[Picture]:
    """The images of a file, not read yet; one error where there are none, or more than so many."""
    upload.write_out()
    found = list(islice(find_files([upload.path]), most + 1))
    if len(found) > most:
        return [too_many(Picture(number, ImageFile(upload.path)), upload, most)]
    return [Picture(number, each, told(each.error, upload)) for each in found]


def read(picture: Picture, preparation: Preparation) -> Picture:
    """The image with its levels, unless it has them or an error already."""
    if picture.error or picture.levels is not None:
        return picture
    path, frame = picture.image.path, picture.image.frame
    try:
        return replace(picture, levels=prepare_image(path, frame, preparation.levels))
    except (OSError, ValueError) as error:
        return replace(picture, error=str(error))


def too_many(picture: Picture, upload: Upload, most: int) -> Picture:
    """What stands for a file that has more images than there is room for."""
    return replace(picture, error=f"{upload.shown} would make it more than {most:,} images; send fewer in a request")


def told(error: str, upload: Upload) -> str:
    """An error as its sender may read it: by the name that was sent, and without a library's words about a DICOM.

    Those may quote the header, which names a patient.
    """
    return _LIBRARY_WORDS.sub(r"\1", error.replace(str(upload.path), upload.shown))


def result(picture: Picture, uploads: Sequence[Upload], said: dict[str, Any]) -> dict[str, Any]:
    """The document of one image and what the model says of it."""
    upload, error = uploads[picture.upload], said.get("error")
    return {
        "file": picture.upload,
        "name": upload.name,
        "frame": picture.image.frame,
        "error": error and told(error, upload),
        "class": said.get("label"),
        "probabilities": said.get("probabilities"),
        "concepts": said.get("concepts"),
        "set": said.get("possible"),
        "abstain": said.get("abstain"),
    }


def explain(model: Model, picture: Picture, upload: Upload, how: ExplainQuestion, risk: float | None) -> Explanation:
    """One image, explained under the name that was sent."""
    name, frame = upload.name or f"image {picture.upload + 1}", picture.image.frame
    return model.explain(
        upload.path,
        frame=frame,
        name=name if frame is None else f"{name}#{frame}",
        risk=None if how.strict else risk,  # it is promised for the ordinary network only
        **how.model_dump(exclude={"pictures"}),
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
