"""What is wrong with a request as a whole: problem documents (RFC 9457)."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

M = TypeVar("M", bound=BaseModel)
PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 2  # what a client is told to wait where there is too much to do


class ProblemError(Exception):
    """A request that is refused: its status, a word for programs, and a sentence for persons."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail, self.headers = status, code, detail, dict(headers or {})


def overloaded(detail: str) -> ProblemError:
    """There is too much to do just now."""
    return ProblemError(503, "overloaded", detail, {"Retry-After": str(RETRY_SECONDS)})


def too_large(detail: str) -> ProblemError:
    """The request has more than one may have."""
    return ProblemError(413, "too-large", detail)


def problem_response(problem: ProblemError) -> Response:
    """The document of a problem."""
    content = {
        "type": "about:blank",
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "detail": problem.detail,
        "code": problem.code,
    }
    return JSONResponse(content, problem.status, problem.headers, PROBLEM_TYPE)


async def answer_problem(request: Request, error: Exception) -> Response:
    """The answer to a request that one of our own functions refuses."""
    assert isinstance(error, ProblemError)
    request.state.problem = error.code
    return problem_response(error)


async def answer_http_error(request: Request, error: Exception) -> Response:
    """The answer to a request that no route takes."""
    assert isinstance(error, HTTPException)
    details = {
        404: ("not-found", "there is nothing at this address; /docs lists what there is"),
        405: (
            "wrong-method",
            f"this address does not take {_word(request.method)}; the header Allow says what it does",
        ),
    }
    code, detail = details.get(error.status_code, ("refused", str(error.detail)))
    return await answer_problem(request, ProblemError(error.status_code, code, detail, error.headers))


async def answer_wrong_value(request: Request, error: Exception) -> Response:
    """The answer to a parameter that is not what it has to be."""
    return await answer_problem(
        request, ProblemError(422, "wrong-value", first_fault(getattr(error, "errors", list)()))
    )


def first_fault(errors: Any) -> str:
    """What pydantic says is wrong first, in one line: where, and what would do; never the value itself."""
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


def _word(method: str) -> str:
    return method if method.isalpha() and len(method) < 20 else "this method"
