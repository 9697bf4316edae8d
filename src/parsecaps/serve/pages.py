"""The pages of the server, from files of its own: the app at `/`, its examples, and the interface at `/docs`."""

import gzip
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Path, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from parsecaps.data.cases import DataSet, first_of_patients
from parsecaps.data.kept import kept_file
from parsecaps.report.case_page import report_shell, view_style
from parsecaps.report.pictures import picture_file
from parsecaps.run import Run
from parsecaps.serve.documents import BINARY, ExampleList, described
from parsecaps.serve.guard import ProblemError
from parsecaps.serve.service import Service

_STATIC = files("parsecaps.serve") / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'{style}; img-src {images}data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_APP, _DOCS = _POLICY.format(style="", images=""), _POLICY.format(style=" 'unsafe-inline'", images="'self' ")
_GZIP = bytes.fromhex("1f8b")


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


def add_pages(app: FastAPI, service: Service) -> None:
    """Put the pages, their files and the examples."""
    for path, kind, policy, content in _PAGES:
        app.get(path, include_in_schema=False)(_answering(f"{kind}; charset=utf-8", policy, content))
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


def _answering(kind: str, policy: str, content: Callable[[], bytes]) -> Callable[[Request], Any]:
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
