"""The documents that programs send and get, as the OpenAPI description shows them."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
LONGEST_NAME = 255


class SentFile(BaseModel):
    """A file in a JSON request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    data: str = Field(description="The bytes of the file in base64.", json_schema_extra={"pattern": _BASE64})
    name: str | None = Field(None, max_length=LONGEST_NAME, description="Comes back with the answer; kept nowhere.")


class SentFiles(BaseModel):
    """The body of a JSON request."""

    model_config = ConfigDict(extra="forbid", strict=True)

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


class PreparationDocument(BaseModel):
    """How an image becomes what the model sees."""

    size: int
    channels: int
    square: str
    scaling: str
    centre: float


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
    preparation: PreparationDocument
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


def files_body(most_files: int) -> dict[str, Any]:
    """The body of a request with files, for the OpenAPI description: a form, or JSON with base64."""
    sent = {"type": "array", "minItems": 1, "maxItems": most_files}
    as_json = SentFiles.model_json_schema()
    file_schema = as_json["$defs"]["SentFile"]
    schema = {
        "type": "object",
        "required": ["files"],
        "additionalProperties": False,
    }
    return {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {**schema, "properties": {"files": {**sent, "items": {"type": "string", "format": "binary"}}}}
            },
            "application/json": {"schema": {**schema, "properties": {"files": {**sent, "items": file_schema}}}},
        },
    }
