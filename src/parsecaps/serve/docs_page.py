"""The description of the interface as a page, from files of our own: nothing is asked of another server."""

import gzip
from collections.abc import Callable
from functools import cache
from importlib.resources import files

from fastapi import FastAPI, Request, Response

_STATIC = files("parsecaps.serve") / "static"
_KINDS = {
    "docs.html": "text/html; charset=utf-8",
    "docs.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_PACKED = ("swagger-ui-bundle.js", "swagger-ui.css")
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


def add_docs(app: FastAPI) -> None:
    """Put the page at `/docs`, and its files below `/static/docs/`."""
    app.get("/docs", include_in_schema=False)(_answering("docs.html"))
    for name in _KINDS.keys() - {"docs.html"}:
        app.get(f"/static/docs/{name}", include_in_schema=False)(_answering(name))


def _answering(name: str) -> Callable[[Request], Response]:
    async def answer(request: Request) -> Response:
        packed, content = name in _PACKED, _content(name)
        headers = {"Content-Type": _KINDS[name], "Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        if packed and "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
        elif packed:
            content = gzip.decompress(content)
        return Response(content, headers=headers)

    return answer  # type: ignore[return-value]


@cache
def _content(name: str) -> bytes:
    return (_STATIC / (f"{name}.gz" if name in _PACKED else name)).read_bytes()
