"""What stands before every route: who may ask, what is said with every answer, and what is written down.

Neither the log nor a metric has a query, a file's name, or anything else that a client can make up.
"""

import hmac
import logging
import time
import traceback
from ipaddress import ip_address

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parsecaps.serve.metrics import ServeMetrics
from parsecaps.serve.problems import ProblemError, problem_response

LOG = logging.getLogger("parsecaps.serve")
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
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.monotonic(), 0
        scope.setdefault("state", {})

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
        except ProblemError as problem:
            scope["state"]["problem"] = problem.code
            await problem_response(problem)(scope, receive, send_with_headers)
        except Exception as error:
            LOG.error("%s at %s", type(error).__name__, _place(error))  # its text may quote a file
            scope["state"]["problem"] = "failed"
            if not status:
                failure = ProblemError(500, "failed", "the server failed at this request; its log says where")
                await problem_response(failure)(scope, receive, send_with_headers)
        finally:
            seconds = time.monotonic() - begun
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.count_request(route, scope["method"], status, seconds, scope["state"].get("problem"))
            method = scope["method"] if scope["method"].isalpha() else "?"
            LOG.info("%s %s %d %.0f ms", method[:10], route, status, 1000 * seconds)

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
        """Whether a browser sends this for a page that is not of this server."""
        origin = headers.get("origin")
        if origin is None:
            return headers.get("sec-fetch-site") == "cross-site"
        place = origin.partition("://")[2]
        return place != host and _name(place) not in self.origins

    def _has_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode("latin-1"), self.token or b"")


def _name(host: str) -> str:
    """The name in a Host header, without the port."""
    name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _place(error: BaseException) -> str:
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return " < ".join(f"{each.name} ({each.filename}:{each.lineno})" for each in frames)
