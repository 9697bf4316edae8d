"""The documents of a review, as the OpenAPI description shows them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_Fraction = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Point = Annotated[list[_Fraction], Field(min_length=2, max_length=2)]
_DIGEST = r"^[0-9a-f]{64}$"


class _Sent(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Mark(_Sent):
    """Something drawn on the image: a box by two corners, or a line by its points, with a comment."""

    kind: Literal["box", "line"]
    points: list[_Point] = Field(
        min_length=2, max_length=2000, description="x and y from 0 to 1 in the prepared image, as pages show it."
    )
    comment: str = Field("", max_length=1000)


class SentReview(_Sent):
    """The body of POST /api/review: what a person says of a kept image, in the words of the model."""

    image: str = Field(pattern=_DIGEST, description="The digest that POST /api/review/images gave.")
    frame: int | None = Field(None, ge=0, le=10**9, description="The number of the image in a file of several.")
    reviewer: str = Field(min_length=1, max_length=100, pattern=r"\S", description="Who says it.")
    verdict: Literal["agree", "disagree"] = Field(description="Whether the class of the model is right.")
    label: str | None = Field(None, description="The right class for one who disagrees; null: not known.")
    concepts: dict[str, bool] = Field(
        default_factory=dict, max_length=1000, description="Concepts that were judged: whether each is present."
    )
    comment: str = Field("", max_length=5000)
    marks: list[Mark] = Field(default_factory=list, max_length=50)


class KeptImage(BaseModel):
    """An image that is kept for reviews: a file of the request, and its digest; or why it is not kept."""

    file: int = Field(description="The position of the file in the request, from 0.")
    image: str | None = Field(description="The digest to review it by: sha256 of what is kept.")
    error: str | None


class KeptImages(BaseModel):
    """The answer to POST /api/review/images, in the order of the files."""

    images: list[KeptImage]


class GivenReview(BaseModel):
    """A review as it was written down, with what the model says of the image."""

    id: int
    image: str
    frame: int | None
    reviewer: str
    at: str
    weights: str
    said: dict[str, Any]
    verdict: Literal["agree", "disagree"]
    label: str | None
    concepts: dict[str, bool]
    comment: str
    marks: list[Mark]


class EarlierReviews(BaseModel):
    """What was said before of a file of the request, the oldest first, of each of its frames; or why it is unknown."""

    file: int = Field(description="The position of the file in the request, from 0.")
    reviews: list[GivenReview]
    error: str | None


class EarlierAnswer(BaseModel):
    """The answer to POST /api/review/earlier, in the order of the files."""

    files: list[EarlierReviews]


class ReviewCounts(BaseModel):
    """The answer to GET /api/review."""

    reviews: int
    images: int = Field(description="Images that were reviewed.")
    disputed: int = Field(description="Images on which reviewers differ.")


def review_body() -> dict[str, Any]:
    """The body of a review for the OpenAPI description, which cannot refer to definitions inside of it."""
    schema = SentReview.model_json_schema()
    mark = schema.pop("$defs")["Mark"]
    schema["properties"]["marks"]["items"] = mark
    return {"required": True, "content": {"application/json": {"schema": schema}}}
