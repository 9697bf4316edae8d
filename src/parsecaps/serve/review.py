"""Reviews, where the server keeps them: what persons say of images becomes training data."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from parsecaps.data.deidentify import KeptFile, kept_file
from parsecaps.serve.documents import Sent, described
from parsecaps.serve.guard import ProblemError, parsed, too_large
from parsecaps.serve.review_store import GivenReview, Mark, Review, ReviewStore, digest_of, manifest_text, settle
from parsecaps.serve.service import Service, redact
from parsecaps.serve.uploads import Upload, in_time, pieces

_MOST_BYTES = 4 * 10**6  # of a review: 50 marks of 2,000 points
_DIGEST = r"^[0-9a-f]{64}$"


class SentReview(Sent):
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


def add_review(app: FastAPI, service: Service, store: ReviewStore) -> None:
    """Put the routes below `/api/review`."""
    most = service.settings.files

    @app.post(
        "/api/review/images", **described("review", "Keep images to review", KeptImages, files=most, statuses=[507])
    )
    async def keep(request: Request) -> Response:
        """Keep files as they are, of a DICOM its pixels alone; the digest of each is for its reviews."""

        def kept(file: KeptFile) -> str:
            if (digest := store.keep(file, service.settings.review_bytes)) is None:
                detail = "the file of reviews has no room for more images; see the setting review_bytes"
                raise ProblemError(507, "no-room", detail)
            return digest

        async with service.files_of(request, most) as uploads:
            found = await run_in_threadpool(_of_each, uploads, "image", kept, None)
        return JSONResponse({"images": found})

    @app.post(
        "/api/review",
        status_code=201,
        **described("review", "Say whether the model is right", GivenReview, statuses=[404], body=SentReview),
    )
    async def review(request: Request) -> Response:
        """Write down what a reviewer says of a kept image, with what the model says of it now."""
        sent = await _receive(request, service.settings.seconds)
        written = await run_in_threadpool(store.add, await _reviewed(service, store, sent))
        return JSONResponse(_given(written), 201)

    @app.post("/api/review/earlier", **described("review", "What was said of images before", EarlierAnswer, files=most))
    async def earlier(request: Request) -> Response:
        """The reviews of each file, found by its pixels or bytes; nothing that is sent is kept."""

        def reviews(file: KeptFile) -> list[dict[str, Any]]:
            return [_given(review) for review in store.reviews(digest_of(file))]

        async with service.files_of(request, most) as uploads:
            found = await run_in_threadpool(_of_each, uploads, "reviews", reviews, [])
        return JSONResponse({"files": found})

    @app.get("/api/review", **described("review", "How much is reviewed", ReviewCounts))
    async def counts() -> Response:
        """How many reviews there are, of how many images, and on how many their reviewers differ."""
        reviews = await run_in_threadpool(store.reviews)
        settled = settle(reviews)
        disputed = sum(bool(each.disputed) for each in settled)
        return JSONResponse({"reviews": len(reviews), "images": len(settled), "disputed": disputed})

    @app.get("/api/review/manifest", **described("review", "Reviews as a manifest", "text/csv"))
    async def manifest() -> Response:
        """The table that `parsecaps train` reads; `parsecaps review FILE --out FOLDER` writes it with the images."""
        text = await run_in_threadpool(manifest_text, store)
        return Response(text, headers={"Content-Type": "text/csv; charset=utf-8"})


def _of_each(
    uploads: Sequence[Upload], name: str, function: Callable[[KeptFile], Any], without: Any
) -> list[dict[str, Any]]:
    """Apply a function to the kept form of each file; a file that cannot be kept gives `without` and its error."""
    found: list[dict[str, Any]] = []
    for number, upload in enumerate(uploads):
        found.append({"file": number, name: without, "error": None})
        try:
            upload.write_out()
            kept = kept_file(upload.path)
        except (OSError, ValueError) as fault:
            found[-1]["error"] = redact(str(fault), upload)
        else:
            found[-1][name] = function(kept)
    return found


async def _receive(request: Request, seconds: float) -> SentReview:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError(415, "unknown-type", "send a review as application/json")
    body = bytearray()
    late = ProblemError(408, "too-slow", f"the review did not arrive within {seconds:g} seconds")
    async with in_time(asyncio.get_running_loop().time() + seconds, late):
        async for data in pieces(request):
            body += data
            if len(body) > _MOST_BYTES:
                raise too_large(f"the review has more than {_MOST_BYTES:,} bytes; draw fewer marks")
    return parsed(SentReview, body)


async def _reviewed(service: Service, store: ReviewStore, sent: SentReview) -> Review:
    """The review with the model's own answer to the image, whatever the client says that it was."""
    model, agrees = service.model, sent.verdict == "agree"
    kept = await run_in_threadpool(store.content, sent.image)
    if kept is None:
        raise ProblemError(404, "unknown-image", "no such image is kept; send it to /api/review/images first")
    upload = Upload(None, service.spool.new_path(), kept.content)
    try:
        async with service.admitted() as end, service.answering(end):
            results = await service.predict([upload])
    finally:
        upload.remove()
    result = next((each for each in results if each["frame"] == sent.frame), None)
    if result is None or result["error"] is not None:
        frames = "leave frame out" if len(results) == 1 else f"give frame from 0 to {len(results) - 1}"
        raise ProblemError(422, "wrong-frame", f"the model has no answer for this frame of the image; {frames}")
    if agrees and sent.label is not None:
        raise ProblemError(422, "wrong-value", "label: is for one who disagrees; leave it out, or disagree")
    labels = () if sent.label is None else (sent.label,)
    for what, names, known in (("concept", sent.concepts, model.concepts), ("class", labels, model.classes)):
        if not set(names) <= set(known):
            detail = f"the model knows no such {what}; it knows {', '.join(known) or 'none'}"
            raise ProblemError(422, f"unknown-{what}", detail)
    said = {name: result[name] for name in ("class", "probabilities", "concepts", "set", "abstain")}
    about = {"weights": service.weights, "preparation": model.preparation.to_dict(), "said": said}
    counted = {"reviewer": sent.reviewer.strip(), "label": said["class"] if agrees else sent.label}
    return Review(**{**dict(sent), **about, **counted})


def _given(review: Review) -> dict[str, Any]:
    return review.model_dump(include={*GivenReview.model_fields})
