"""The settings of a server: what it promises, how it batches, and the limits it keeps."""

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from parsecaps.config import AnswerConfig, Auto

_MEGABYTE = 10**6


class ServeConfig(AnswerConfig):
    """How to serve; docs/serve.md says more."""

    runtime: Auto | Literal["torch", "onnx"] = "auto"
    """What runs the model for `/api/predict`; auto is ONNX Runtime where it can, else PyTorch."""
    workers: PositiveInt | Auto = "auto"
    """Threads that run the model; auto is one for each core that torch would use (`OMP_NUM_THREADS` says how many)."""
    batch_size: PositiveInt | Auto = "auto"
    """Images that a worker takes at a time; auto is fewer with ONNX Runtime, which gains little from large batches."""
    gather_milliseconds: NonNegativeFloat = 10.0
    """How long a worker waits for images of other requests. A lone client never waits."""
    requests: PositiveInt = 64
    """Requests that are answered at a time; one more gets 503."""
    files: PositiveInt = 64
    """Files in a request."""
    images: PositiveInt = 256
    """Images in a request, counting frames."""
    explained: PositiveInt = 16
    """Images (and files) in a request to `/api/explain`."""
    file_bytes: PositiveInt = 100 * _MEGABYTE
    """The most that a file may have; watched while it arrives."""
    request_bytes: PositiveInt = 200 * _MEGABYTE
    """The most that a request may have; watched while it arrives."""
    stored_bytes: PositiveInt = 1000 * _MEGABYTE
    """Of all uploads at a time; more gets 503."""
    seconds: PositiveFloat = 60.0
    """For a request, from its first byte to its answer."""
    hosts: tuple[str, ...] = ()
    """Names of the server, for a reverse proxy or a web page."""
    examples: NonNegativeInt = 6
    """Images of the run that the page offers."""
    review: Path | None = None
    """Let people review images, and keep reviews and images in this SQLite file."""
    review_bytes: PositiveInt = 20_000 * _MEGABYTE
    """How large the file of reviews may grow; then 507."""
