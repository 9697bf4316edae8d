"""The page for persons at `/`, its files below `/static/app/`, and the examples that it offers."""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

from fastapi import FastAPI, Path, Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from parsecaps.report.case_page import report_shell, view_style
from parsecaps.serve.documents import ExampleList
from parsecaps.serve.examples import Examples
from parsecaps.serve.problems import ProblemError
from parsecaps.serve.service import Service

_STATIC = files("parsecaps.serve") / "static"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def add_app_page(app: FastAPI, service: Service, problems: Callable[..., dict[int | str, dict[str, Any]]]) -> None:
    """Put the page and its examples; `problems` describes answers by their status."""
    for path, kind, content in (
        ("/", "text/html", lambda: _file("app.html")),
        ("/static/app/app.js", "text/javascript", lambda: _file("app.js")),
        ("/static/app/app.css", "text/css", lambda: view_style() + _file("app.css")),
        ("/static/app/report.html", "text/plain", report_shell),
    ):
        app.get(path, include_in_schema=False)(_answering(f"{kind}; charset=utf-8", content))
    examples = Examples(service.model.run, service.settings.examples)

    @app.get(
        "/api/examples",
        tags=["examples"],
        summary="Which examples there are",
        response_model=ExampleList,
        responses=problems(),
    )
    async def list_examples() -> Response:
        """The classes of some images of the run that the model never learned from; none where they are not at hand."""
        labels = await run_in_threadpool(lambda: examples.labels)
        return JSONResponse({"examples": [{"label": label} for label in labels]})

    @app.get(
        "/api/examples/{number}",
        tags=["examples"],
        summary="An example",
        response_class=Response,
        responses={
            200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
            **problems(404, 422),
        },
    )
    async def example(number: Annotated[int, Path(ge=0, description="Its position, from 0.")]) -> Response:
        """The file of an example; of a DICOM its pixels alone."""
        try:
            content = await run_in_threadpool(examples.content, number)
        except (IndexError, OSError, ValueError):
            raise ProblemError(404, "no-example", "there is no such example; /api/examples lists them") from None
        return Response(content, headers={"Content-Type": "application/octet-stream"})


def _answering(kind: str, content: Callable[[], str]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        headers = {"Content-Type": kind, "Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        return Response(content(), headers=headers)

    return answer


@cache
def _file(name: str) -> str:
    return (_STATIC / name).read_text(encoding="utf-8")
