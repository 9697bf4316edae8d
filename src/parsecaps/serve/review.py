"""The routes of reviews, where the server keeps them: what persons say of images becomes training data."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from parsecaps.data.kept import KeptFile, kept_file
from parsecaps.serve.documents import files_body
from parsecaps.serve.pictures import told
from parsecaps.serve.problems import ProblemError, overloaded, parsed, too_large
from parsecaps.serve.review_documents import (
    EarlierAnswer,
    GivenReview,
    KeptImages,
    ReviewCounts,
    SentReview,
    review_body,
)
from parsecaps.serve.review_manifest import manifest_text, settle
from parsecaps.serve.review_store import Review, ReviewStore, digest_of
from parsecaps.serve.service import Service
from parsecaps.serve.uploads import Upload

_MOST_BYTES = 4 * 10**6  # of a review: 50 marks of 2,000 points
Problems = Callable[..., dict[int | str, dict[str, Any]]]


def add_review(app: FastAPI, service: Service, store: ReviewStore, problems: Problems) -> None:
    """Put the routes below `/api/review`; `problems` describes answers by their status."""
    reviewing = Reviewing(service, store)

    @app.post(
        "/api/review/images",
        tags=["review"],
        summary="Keep images to review",
        response_model=KeptImages,
        responses=problems(400, 403, 408, 413, 415, 422, 503, 504, 507),
        openapi_extra={"requestBody": files_body(service.settings.files)},
    )
    async def keep(request: Request) -> Response:
        """Keep files as they are, of a DICOM its pixels alone; the digest of each is for its reviews."""
        async with service.files_of(request, service.settings.files) as uploads:
            found = await run_in_threadpool(reviewing.keep, uploads)
        return JSONResponse({"images": found})

    @app.post(
        "/api/review",
        tags=["review"],
        summary="Say whether the model is right",
        status_code=201,
        response_model=GivenReview,
        responses=problems(400, 403, 404, 408, 413, 415, 422, 503, 504),
        openapi_extra={"requestBody": review_body()},
    )
    async def review(request: Request) -> Response:
        """Write down what a reviewer says of a kept image, with what the model says of it now."""
        given = await reviewing.review(await _sent_review(request, service.settings.seconds))
        return JSONResponse(_given(given), 201)

    @app.post(
        "/api/review/earlier",
        tags=["review"],
        summary="What was said of images before",
        response_model=EarlierAnswer,
        responses=problems(400, 403, 408, 413, 415, 422, 503, 504),
        openapi_extra={"requestBody": files_body(service.settings.files)},
    )
    async def earlier(request: Request) -> Response:
        """The reviews of each file, found by its pixels or bytes; nothing that is sent is kept."""
        async with service.files_of(request, service.settings.files) as uploads:
            found = await run_in_threadpool(reviewing.earlier, uploads)
        return JSONResponse({"files": found})

    @app.get(
        "/api/review",
        tags=["review"],
        summary="How much is reviewed",
        response_model=ReviewCounts,
        responses=problems(),
    )
    async def counts() -> Response:
        """How many reviews there are, of how many images, and on how many their reviewers differ."""
        return JSONResponse(await run_in_threadpool(reviewing.counts))

    @app.get(
        "/api/review/manifest",
        tags=["review"],
        summary="Reviews as a manifest",
        response_class=Response,
        responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **problems()},
    )
    async def manifest() -> Response:
        """The table that `parsecaps train` reads; `parsecaps review FILE --out FOLDER` writes it with the images."""
        text = await run_in_threadpool(manifest_text, reviewing.store)
        return Response(text, headers={"Content-Type": "text/csv; charset=utf-8"})


class Reviewing:
    """Reviews of images of one service."""

    def __init__(self, service: Service, store: ReviewStore) -> None:
        self.service, self.store = service, store

    def keep(self, uploads: Sequence[Upload]) -> list[dict[str, Any]]:
        """Keep the images of a request; an error for each that cannot be kept."""
        found: list[dict[str, Any]] = []
        for number, upload in enumerate(uploads):
            kept = _kept(upload)
            if isinstance(kept, str):
                found.append({"file": number, "image": None, "error": kept})
                continue
            digest = self.store.keep(kept, self.service.settings.review_bytes)
            if digest is None:
                detail = "the file of reviews has no room for more images; see the setting review_bytes"
                raise ProblemError(507, "no-room", detail)
            found.append({"file": number, "image": digest, "error": None})
        return found

    def earlier(self, uploads: Sequence[Upload]) -> list[dict[str, Any]]:
        """What was said before of the images of a request."""
        found: list[dict[str, Any]] = []
        for number, upload in enumerate(uploads):
            kept = _kept(upload)
            error = kept if isinstance(kept, str) else None
            reviews = [] if isinstance(kept, str) else self.store.reviews(digest_of(kept))
            found.append({"file": number, "reviews": [*map(_given, reviews)], "error": error})
        return found

    async def review(self, sent: SentReview) -> Review:
        """Write a review down."""
        model, service = self.service.model, self.service
        said = await self._said(sent)
        if sent.verdict == "agree" and sent.label is not None:
            raise ProblemError(422, "wrong-value", "label: is for one who disagrees; leave it out, or disagree")
        for name, known, what in (
            *((name, model.concepts, "concept") for name in sent.concepts),
            *((name, model.classes, "class") for name in [sent.label] if name is not None),
        ):
            if name not in known:
                detail = f"the model knows no such {what}; it knows {', '.join(known) or 'none'}"
                raise ProblemError(422, f"unknown-{what}", detail)
        given = Review(
            image=sent.image,
            frame=sent.frame,
            reviewer=sent.reviewer.strip(),
            weights=service.weights,
            preparation=model.preparation.to_dict(),
            said=said,
            verdict=sent.verdict,
            label=said["class"] if sent.verdict == "agree" else sent.label,
            concepts=sent.concepts,
            comment=sent.comment,
            marks=[mark.model_dump() for mark in sent.marks],
        )
        return await run_in_threadpool(self.store.add, given)

    async def _said(self, sent: SentReview) -> dict[str, Any]:
        """What the model says of a kept image: not what a client says that it said."""
        kept = await run_in_threadpool(self.store.content, sent.image)
        if kept is None:
            detail = "no such image is kept; send it to /api/review/images first"
            raise ProblemError(404, "unknown-image", detail)
        upload = Upload(None, self.service.spool.new_path(), bytearray(kept.content))
        try:
            async with self._within_limits():
                results = await self.service.predict([upload])
        finally:
            upload.remove()
        result = next((each for each in results if each["frame"] == sent.frame), None)
        if result is None or result["error"] is not None:
            frames = "leave frame out" if len(results) == 1 else f"give frame from 0 to {len(results) - 1}"
            raise ProblemError(422, "wrong-frame", f"the model has no answer for this frame of the image; {frames}")
        return {name: result[name] for name in ("class", "probabilities", "concepts", "set", "abstain")}

    @asynccontextmanager
    async def _within_limits(self) -> AsyncIterator[None]:
        """Count as a request that the model answers, and end in time."""
        service, limits = self.service, self.service.settings
        if service.is_stopping or service.num_requests >= limits.requests:
            raise overloaded("too many requests are being answered already; try again later")
        service.num_requests += 1
        try:
            async with asyncio.timeout(limits.seconds):
                yield
        except TimeoutError:
            raise ProblemError(504, "too-slow", f"no answer within {limits.seconds:g} seconds; try again") from None
        finally:
            service.num_requests -= 1

    def counts(self) -> dict[str, int]:
        """How much there is."""
        reviews = self.store.reviews()
        settled = settle(reviews)
        return {
            "reviews": len(reviews),
            "images": len(settled),
            "disputed": sum(bool(each.disputed) for each in settled),
        }


def _kept(upload: Upload) -> KeptFile | str:
    """What would be kept of a file, or why that cannot be."""
    try:
        upload.write_out()
        return kept_file(upload.path)
    except (OSError, ValueError) as error:
        return told(str(error), upload)


def _given(review: Review) -> dict[str, Any]:
    """A review as the interface shows it."""
    return {name: getattr(review, name) for name in GivenReview.model_fields}


async def _sent_review(request: Request, seconds: float) -> SentReview:
    """The body of a review, within limits."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise ProblemError(415, "unknown-type", "send a review as application/json")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for data in request.stream():
                body += data
                if len(body) > _MOST_BYTES:
                    raise too_large(f"the review has more than {_MOST_BYTES:,} bytes; draw fewer marks")
    except TimeoutError:
        raise ProblemError(408, "too-slow", f"the review did not arrive within {seconds:g} seconds") from None
    except ClientDisconnect:
        raise ProblemError(400, "incomplete", "the request ended before all of it was sent") from None
    return parsed(SentReview, body)
