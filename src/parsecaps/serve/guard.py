"""What stands before every route: who may ask, what every answer has with it, and what is counted and logged.

Neither the log nor a metric has a query, a file's name, or anything else that a client can make up. What is wrong with
a request as a whole is a problem document (RFC 9457).
"""

import hmac
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

M = TypeVar("M", bound=BaseModel)
LOG = logging.getLogger("parsecaps.serve")
PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 2  # what a client is told to wait where there is too much to do
PROBES = ("/healthz", "/readyz")  # asked by number, not by name, where a cluster asks
OPEN = (*PROBES, "/docs", "/openapi.json", "/static/")  # need no token: they say nothing of a model
_READING = {"GET", "HEAD", "OPTIONS"}
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_IMAGES = (1, 2, 4, 8, 16, 32, 64, 128)
_METHODS = {"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}


class ProblemError(Exception):
    """A request that is refused: its status, a word for programs, and a sentence for persons."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.headers = status, code, detail, dict(headers or {})

    def response(self) -> Response:
        """The document of the problem."""
        content = {"type": "about:blank", "title": HTTPStatus(self.status).phrase, "status": self.status}
        content |= {"detail": self.detail, "code": self.code}
        return JSONResponse(content, self.status, self.headers, PROBLEM_TYPE)


def overloaded(detail: str) -> ProblemError:
    """There is too much to do just now."""
    return ProblemError(503, "overloaded", detail, {"Retry-After": str(RETRY_SECONDS)})


def too_large(detail: str) -> ProblemError:
    """The request has more than one may have."""
    return ProblemError(413, "too-large", detail)


async def refuse(request: Request, error: Exception) -> Response:
    """Turn an error of the framework into a problem: a request that no route takes, or an invalid parameter."""
    if not isinstance(error, HTTPException):
        raise ProblemError(422, "wrong-value", first_fault(getattr(error, "errors", list)())) from None
    method = request.method if request.method in _METHODS else "this method"
    details = {
        404: ("not-found", "there is nothing at this address; /docs lists what there is"),
        405: ("wrong-method", f"this address does not take {method}; the header Allow says what it does"),
    }
    code, detail = details.get(error.status_code, ("refused", str(error.detail)))
    raise ProblemError(error.status_code, code, detail, error.headers) from None


def first_fault(errors: Any) -> str:
    """The first error of pydantic in one line: where it is, and what would be valid; never the value itself."""
    first = next(iter(errors), {"loc": ("request",), "msg": "cannot be read"})
    place = [str(part) for part in first["loc"] if part not in ("query", "body")]
    message = str(first["msg"])
    return f"{'.'.join(place) or 'the body'}: {message[:1].lower()}{message[1:]}"


def parsed(kind: type[M], body: bytes | bytearray) -> M:
    """A document of a request; what is wrong with it is a problem."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False, include_context=False)
        if faults[0]["type"] == "json_invalid":
            raise ProblemError(400, "broken-json", "the body is not valid JSON") from None
        raise ProblemError(422, "wrong-value", first_fault(faults)) from None


class ServeMetrics:
    """The counters of one server, in a registry of their own; no label has anything that a client can make up."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        here: dict[str, Any] = {"registry": self.registry, "namespace": "parsecaps"}
        self._requests = Counter("requests", "Requests.", ("route", "method", "status"), **here)
        self._seconds = Histogram("request_seconds", "Time to the answer.", ("route",), buckets=_SECONDS, **here)
        self._problems = Counter("problems", "Requests that were refused.", ("code",), **here)
        self._images = Counter("images", "Images of requests.", ("result",), **here)
        self.batches = Histogram("batch_images", "Images in a batch.", buckets=_IMAGES, **here)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a gauge that reads its value when it is scraped."""
        Gauge(f"parsecaps_{name}", text, registry=self.registry).set_function(value)

    def count_request(self, route: str, method: str, status: int, seconds: float, problem: str | None) -> None:
        self._requests.labels(route, "other" if method == "?" else method, str(status)).inc()
        self._seconds.labels(route).observe(seconds)
        if problem:
            self._problems.labels(problem).inc()

    def count_images(self, answered: int, refused: int) -> None:
        self._images.labels("answered").inc(answered)
        self._images.labels("refused").inc(refused)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "example.org")]
    [True, True, True, False, False]
    """
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Checks and headers around an application, and one line in the log for each request.

    With a `token` every address but `/` and those in `OPEN` asks for it. `hosts` are the names by which the server may
    be called, None for any: where only this machine may ask, a web page must not come in under a name of its own.
    Pages of `origins` may ask too, beside those of the server itself: it may have another name outside.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServeMetrics,
        token: str | None = None,
        hosts: frozenset[str] | None = None,
        origins: frozenset[str] = frozenset(),
    ) -> None:
        self.app, self.metrics, self.hosts, self.origins = app, metrics, hosts, origins
        self.token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status, problem = time.monotonic(), 0, None

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            self._check(scope)
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            if not isinstance(error, ProblemError):
                LOG.error("%s at %s", type(error).__name__, _place(error))  # its text may quote a file
                error = ProblemError(500, "failed", "the server failed at this request; its log says where")
            problem = error.code
            if not status:
                await error.response()(scope, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - begun
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in _METHODS else "?"
            self.metrics.count_request(route, method, status, seconds, problem)
            LOG.info("%s %s %d %.0f ms", method, route, status, 1000 * seconds)

    def _check(self, scope: Scope) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if self.hosts is not None and path not in PROBES and _name(host) not in self.hosts:
            raise ProblemError(421, "wrong-host", "the server is not called by this name; see the setting hosts")
        if scope["method"] not in _READING and self._is_foreign(headers, host):
            raise ProblemError(403, "foreign-page", "a web page of another address may not ask this server")
        if self.token is not None and path != "/" and not path.startswith(OPEN) and not self._has_token(headers):
            detail = "send the token of the server as Authorization: Bearer"
            raise ProblemError(401, "no-token", detail, {"WWW-Authenticate": 'Bearer realm="parsecaps"'})

    def _is_foreign(self, headers: Headers, host: str) -> bool:
        """Whether a browser sends this for a page of another server."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site") == "cross-site"
        place = origin.partition("://")[2]
        return place != host and _name(place) not in self.origins

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self.token or b"")


def _name(host: str) -> str:
    name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _place(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in frames)
