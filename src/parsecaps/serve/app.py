"""The application: its routes, and their description."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException

from parsecaps import __version__
from parsecaps.report.explanation_document import ExplanationDocument
from parsecaps.serve.documents import Answer, ExplainQuestion, Health, ModelDocument, Problem, described, problems
from parsecaps.serve.guard import (
    PROBES,
    Guard,
    ProblemError,
    answer_http_error,
    answer_problem,
    answer_wrong_value,
    is_loopback,
    overloaded,
)
from parsecaps.serve.pages import add_pages
from parsecaps.serve.review import add_review
from parsecaps.serve.service import Service

_ABOUT = (
    "What a trained model says of images, and why. Images are files of any format that `parsecaps predict` reads "
    "(PNG, JPEG, BMP, TIFF, DICOM, NIfTI). No file is kept, unless it is reviewed. **Not a medical device.**"
)


def make_app(service: Service, *, host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    """The application around a service that is not started yet; it starts and stops with the application."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="parsecaps",
        version=__version__,
        description=_ABOUT,
        lifespan=lifespan,
        responses=problems(401, 421, 500),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            ProblemError: answer_problem,
            HTTPException: answer_http_error,
            RequestValidationError: answer_wrong_value,
        },
    )
    names = frozenset(name.lower() for name in service.settings.hosts)
    own = {"localhost", "127.0.0.1", "[::1]", f"[{host}]" if ":" in host else host.lower()}
    app.add_middleware(
        Guard,
        metrics=service.metrics,
        token=token,
        hosts=frozenset(own) | names if is_loopback(host) else names or None,
        origins=names,
    )
    _add_interface(app, service)
    if service.reviews is not None:
        add_review(app, service, service.reviews)
    _add_probes(app, service)
    add_pages(app, service)
    components = app.openapi().setdefault("components", {})  # FastAPI keeps the description, so it can be completed
    components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    if token is not None:
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path in app.openapi()["paths"].keys() - set(PROBES):
            for operation in app.openapi()["paths"][path].values():
                operation["security"] = [{"token": []}]
    return app


def _add_interface(app: FastAPI, service: Service) -> None:
    most, most_explained = service.settings.files, min(service.settings.files, service.settings.explained)

    @app.post("/api/predict", **described("model", "What the model says of images", Answer, files=most))
    async def predict(request: Request) -> Response:
        """One result for each image, in the order of the files: an answer, or why there is none."""
        async with service.files_of(request, most) as uploads:
            results = await service.predict(uploads)
        return JSONResponse({"results": results, "weights": service.weights, "notes": service.notes})

    why = "What the model says of images, and why"

    @app.post("/api/explain", **described("model", why, ExplanationDocument, files=most_explained))
    async def explain(request: Request, how: Annotated[ExplainQuestion, Query()]) -> Response:
        """The explanation document of all images, with a line for each that cannot be explained."""
        async with service.files_of(request, most_explained) as uploads:
            found = await service.explain(uploads, how)
        return JSONResponse(found)

    @app.get("/api/model", **described("model", "Which model answers", ModelDocument))
    async def model() -> Response:
        """Its kind, classes and concepts, how it prepares images and how it is calibrated, and the limits."""
        return JSONResponse(service.about_model())


def _add_probes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", **described("operation", "Is it alive?", Health))
    async def healthz() -> Response:
        """Whether the server lives."""
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", **described("operation", "Is it ready?", Health, statuses=[503]))
    async def readyz() -> Response:
        """Whether the model is loaded and answers; 503 while the server starts or stops."""
        if not service.is_ready:
            raise overloaded("the server is not ready: it starts, stops, or its model does not answer")
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", **described("operation", "Counters for Prometheus", "text/plain"))
    async def metrics() -> Response:
        """Requests, their time, what waits, batches, images and problems."""
        return Response(service.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})
