"""The server: its routes and their description, its pages, the socket it listens at, and its end."""

import gzip
import logging
import socket
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from types import FrameType
from typing import Annotated, Any

import numpy as np
import uvicorn
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from parsecaps import __version__
from parsecaps.data.cases import DataSet, first_of_patients
from parsecaps.data.deidentify import kept_file
from parsecaps.report.case_page import report_shell, view_style
from parsecaps.report.explanation_document import ExplanationDocument
from parsecaps.report.pictures import picture_file
from parsecaps.run import Run
from parsecaps.serve.documents import (
    BINARY,
    Answer,
    ExampleList,
    ExplainQuestion,
    Health,
    ModelDocument,
    Problem,
    described,
    problems,
)
from parsecaps.serve.guard import LOG, PROBES, Guard, ProblemError, is_loopback, overloaded, refuse
from parsecaps.serve.review import add_review
from parsecaps.serve.service import Service

_ABOUT = (
    "What a trained model says of images, and why. Images are files of any format that `parsecaps predict` reads "
    "(PNG, JPEG, BMP, TIFF, DICOM, NIfTI). No file is kept, unless it is reviewed. **Not a medical device.**"
)
_STATIC = files("parsecaps.serve") / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{style}; img-src {images}data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_APP, _DOCS = _POLICY.format(style="", images=""), _POLICY.format(style=" 'unsafe-inline'", images="'self' ")
_GZIP = bytes.fromhex("1f8b")
_SHORTEST_TOKEN = 16
_KEEP_ALIVE_SECONDS = 65  # longer than a proxy keeps a connection, so that it is the proxy who ends it


@cache
def _file(name: str) -> bytes:
    return (_STATIC / name).read_bytes()


_PAGES: tuple[tuple[str, str, str, Callable[[], bytes]], ...] = (
    ("/", "text/html", _APP, lambda: _file("app.html")),
    ("/static/app/app.js", "text/javascript", _APP, lambda: _file("app.js")),
    ("/static/app/app.css", "text/css", _APP, lambda: view_style().encode() + _file("app.css")),
    ("/static/app/report.html", "text/plain", _APP, lambda: report_shell().encode()),
    ("/docs", "text/html", _DOCS, lambda: _file("docs.html")),
    ("/static/docs/docs.js", "text/javascript", _DOCS, lambda: _file("docs.js")),
    ("/static/docs/swagger-ui-bundle.js", "text/javascript", _DOCS, lambda: _file("swagger-ui-bundle.js.gz")),
    ("/static/docs/swagger-ui.css", "text/css", _DOCS, lambda: _file("swagger-ui.css.gz")),
)


def make_app(service: Service, *, host: str = "127.0.0.1", token: str | None = None) -> FastAPI:
    """The application around a service that is not started yet; it starts and stops with the application."""
    app = FastAPI(
        title="parsecaps",
        version=__version__,
        description=_ABOUT,
        lifespan=service.lifespan,
        responses=problems(401, 421, 500),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={HTTPException: refuse, RequestValidationError: refuse},
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
    _add_examples(app, service)
    for path, kind, policy, content in _PAGES:
        app.get(path, include_in_schema=False)(_page(f"{kind}; charset=utf-8", policy, content))
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


def _add_examples(app: FastAPI, service: Service) -> None:
    examples = cache(partial(_examples, service.model.run, service.settings.examples))

    @app.get("/api/examples", **described("examples", "Which examples there are", ExampleList))
    async def list_examples() -> Response:
        """The classes of some images of the run that the model never learned from; none where they are not at hand."""
        found = await run_in_threadpool(examples)
        return JSONResponse({"examples": [{"label": data.classes[data.cases[row].label]} for data, row in found]})

    @app.get("/api/examples/{number}", **described("examples", "An example", BINARY, statuses=[404, 422]))
    async def example(number: Annotated[int, Path(ge=0, description="Its position, from 0.")]) -> Response:
        """The file of an example; of a DICOM its pixels alone."""
        try:
            content = await run_in_threadpool(lambda: _content(*examples()[number]))
        except (IndexError, OSError, ValueError):
            raise ProblemError(404, "no-example", "there is no such example; /api/examples lists them") from None
        return Response(content, headers={"Content-Type": BINARY})


def _page(kind: str, policy: str, content: Callable[[], bytes]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        headers = {"Content-Type": kind, "Content-Security-Policy": policy, "Cache-Control": "no-cache"}
        found = content()
        if found.startswith(_GZIP):
            if "gzip" in request.headers.get("accept-encoding", ""):
                headers["Content-Encoding"] = "gzip"
            else:
                found = gzip.decompress(found)
        return Response(found, headers=headers)

    return answer


def _examples(run: Run | None, most: int) -> list[tuple[DataSet, int]]:
    """Images to try the page with, that the model never learned from; none where the data of the run are not at hand.

    They are the first test cases (validation without any) of the first patients, the classes in turn.
    """
    if run is None or not most:
        return []
    try:
        data, rows = run.data, run.rows("test") or run.rows("val")
    except (OSError, ValueError):  # the data are elsewhere, or were changed: there is nothing to show
        return []
    whole = [row for row in rows if data.cases[row].frame is None]
    return [(data, row) for row in first_of_patients(data, whole, most)]


def _content(data: DataSet, row: int) -> bytes:
    """The file of a case, without what may name a patient."""
    from PIL import Image

    if data.draw is not None:
        return picture_file(Image.fromarray(np.moveaxis(data.draw([row])[0], 0, -1).squeeze()))
    return kept_file(data.cases[row].image).content


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
        return Response(generate_latest(service.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


def check_token(host: str, token: str | None) -> None:
    """Refuse an address that others can reach without a token, and a token that can be guessed."""
    if token is None and not is_loopback(host):
        raise ValueError(f"others can reach {host}, so a token is needed; give --token-file, or --host 127.0.0.1")
    if token is not None and not (len(token) >= _SHORTEST_TOKEN and token.isascii() and token.isprintable()):
        wanted = f"at least {_SHORTEST_TOKEN} letters and digits"
        raise ValueError(f"the token can be guessed, or not be sent; give {wanted}, as openssl rand -hex 32 makes")


def listen(host: str, port: int) -> socket.socket:
    """A socket at an address; an address that cannot be had is an error of one line."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = error.strerror or str(error)
        raise OSError(f"{host}:{port} cannot be listened at ({reason}); give another --host or --port") from None


def address_of(listening: socket.socket) -> str:
    """What to type into a browser."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class Server(uvicorn.Server):
    """A server that says it is not ready as soon as it is asked to stop, finishes what it has begun, and ends."""

    def __init__(self, service: Service, *, host: str, token: str | None = None) -> None:
        self.service = service
        super().__init__(
            uvicorn.Config(
                make_app(service, host=host, token=token),
                log_config=None,
                log_level="warning",
                access_log=False,  # it would have queries in it
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="on",
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(service.settings.seconds) + 1,
            )
        )

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.service.is_stopping = True
        super().handle_exit(sig, frame)


def serve(
    service: Service, listening: socket.socket, *, host: str, token: str | None, say: Callable[[str], None]
) -> None:
    """Answer requests until a signal asks for the end."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # broken forms are the sender's business
    try:
        say(address_of(listening))
        server = Server(service, host=host, token=token)
        server.run(sockets=[listening])
        if not server.started:
            raise OSError("the server did not start; the lines above say why")
    finally:
        LOG.removeHandler(handler)
        service.spool.close()
