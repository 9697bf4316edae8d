"""The documents that programs send and get, as the OpenAPI description shows them."""

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from parsecaps.data.preparation import Preparation
from parsecaps.serve.guard import PROBLEM_TYPE

_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
LONGEST_NAME = 255
BINARY = "application/octet-stream"
_TAKING = (400, 403, 408, 413, 415, 422, 503, 504)  # what may be wrong with any request that has a body
_PROBLEMS = {
    400: "The body is broken.",
    401: "The token is missing or wrong.",
    403: "A web page of another address may not ask.",
    404: "There is no such thing.",
    408: "The request did not arrive in time.",
    413: "The request, or a file of it, has too many bytes.",
    415: "The body is of a type that is not taken.",
    421: "The server is not called by this name.",
    422: "The request is not what it has to be.",
    500: "The server failed.",
    503: "There is too much to do, or the server starts or stops; see Retry-After.",
    504: "There is no answer in time.",
    507: "There is no room for more images.",
}


class Sent(BaseModel):
    """What a client may send: nothing beside it, and each value of its kind."""

    model_config = ConfigDict(extra="forbid", strict=True)


class SentFile(Sent):
    """A file in a JSON request."""

    data: str = Field(description="The bytes of the file in base64.", json_schema_extra={"pattern": _BASE64})
    name: str | None = Field(None, max_length=LONGEST_NAME, description="Comes back with the answer; kept nowhere.")


class SentFiles(Sent):
    """The body of a JSON request."""

    files: list[SentFile] = Field(min_length=1)


class ExplainQuestion(BaseModel):
    """How to explain, as parameters of POST /api/explain; see docs/explain.md."""

    model_config = ConfigDict(extra="forbid")

    method: Literal["routes", "grad-cam", "integrated-gradients", "occlusion"] = Field(
        "routes", description="How maps are made."
    )
    trees: int = Field(3, ge=0, le=20, description="Parse trees for each image.")
    strict: bool = Field(False, description="Explain the strict network, in which each capsule has one parent.")
    traversals: int = Field(0, ge=0, le=20, description="Numbers of the global capsule that move before the decoder.")
    pictures: bool = Field(False, description="Add the prepared image, and pictures of known cases, for a page.")


class Result(BaseModel):
    """What the model says of one image: an answer, or an error and nothing else.

    The numbers are those of `parsecaps predict`. `set` and `abstain` are null unless the server was given a risk.
    """

    file: int = Field(description="The position of the file in the request, from 0.")
    name: str | None = Field(description="The name that was sent with the file.")
    frame: int | None = Field(description="The number of the image, from 0, in a file of several.")
    error: str | None = Field(description="Why the file cannot be answered, and what would do.")
    class_: str | None = Field(alias="class", description="The class with the highest probability.")
    probabilities: dict[str, float] | None
    concepts: dict[str, float] | None = Field(description="How present each concept is, from 0 to 1.")
    set: list[str] | None = Field(description="The classes that cannot be ruled out at the risk of the server.")
    abstain: bool | None = Field(description="True unless a single class is left.")


class Answer(BaseModel):
    """The answer to POST /api/predict: a result for each image, in the order of the files."""

    results: list[Result]
    weights: str = Field(description="The digest of the weights that answered.")
    notes: list[str] = Field(description="What to know about all of these numbers.")


class CalibrationDocument(BaseModel):
    """What validation patients taught about the probabilities."""

    temperature: float
    patients: int | None = Field(description="How many calibrated the sets; null where none did.")
    risk: float | None = Field(description="The share of the sets that may leave out the truth; null without sets.")
    threshold: float | None = Field(description="A class is in the set from this probability on.")
    note: str | None


class RuntimeDocument(BaseModel):
    """What runs the network for predictions; explanations always come from PyTorch."""

    name: Literal["torch", "onnx"]
    version: str
    note: str | None = Field(description="Why it is not ONNX Runtime, where that was not chosen.")


class ModelDocument(BaseModel):
    """The answer to GET /api/model."""

    kind: str
    version: str = Field(description="The version of parsecaps that serves it.")
    weights: str = Field(description="sha256 of the file with the weights.")
    classes: list[str]
    concepts: list[str]
    preparation: Preparation
    calibration: CalibrationDocument
    runtime: RuntimeDocument
    limits: dict[str, float] = Field(description="What a request has to keep to.")
    review: bool = Field(description="Whether reviews are kept, and the images that are reviewed.")


class Example(BaseModel):
    """An image to try the page with."""

    label: str = Field(description="Its class.")


class ExampleList(BaseModel):
    """The answer to GET /api/examples: what GET /api/examples/0 and so on give."""

    examples: list[Example]


class Health(BaseModel):
    """The answer of a server that lives, or is ready."""

    status: Literal["alive", "ready"]


class Problem(BaseModel):
    """What is wrong with a request as a whole (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str = Field(description="What is wrong, and what would do.")
    code: str = Field(description="A word for programs.")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The answers with a problem that have these statuses, for the OpenAPI description."""
    content = {PROBLEM_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {status: {"description": _PROBLEMS[status], "content": content} for status in statuses}


def described(
    tag: str,
    summary: str,
    answer: type[BaseModel] | str,
    *,
    statuses: Sequence[int] = (),
    files: int = 0,
    body: type[BaseModel] | None = None,
) -> dict[str, Any]:
    """A route in the OpenAPI description: its answer, a document or text of a media type, and its other statuses.

    It takes up to so many `files`, as a form or as JSON with base64, or a `body` in JSON; both have problems of their
    own.
    """
    taking = _TAKING if files or body else ()
    found: dict[str, Any] = {"tags": [tag], "summary": summary, "responses": problems(*taking, *statuses)}
    if isinstance(answer, str):
        content = {"schema": {"type": "string", **({"format": "binary"} if answer == BINARY else {})}}
        found["responses"][200] = {"content": {answer: content}}
        found["response_class"] = Response
    else:
        found["response_model"] = answer
    if taking:
        schemas = _file_schemas(files) if body is None else {"application/json": _schema(body)}
        content = {media: {"schema": schema} for media, schema in schemas.items()}
        found["openapi_extra"] = {"requestBody": {"required": True, "content": content}}
    return found


def _file_schemas(most: int) -> dict[str, Any]:
    sent = {"multipart/form-data": {"type": "string", "format": "binary"}, "application/json": _schema(SentFile)}
    kind = {"type": "object", "required": ["files"], "additionalProperties": False}
    files = {"type": "array", "minItems": 1, "maxItems": most}
    return {media: {**kind, "properties": {"files": {**files, "items": each}}} for media, each in sent.items()}


def _schema(kind: type[BaseModel]) -> Any:
    """The schema of a document; the models within it are in the description, as answers have them too."""
    schema = kind.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    return schema
