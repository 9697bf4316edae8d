"""The settings of a server: what it promises, how it batches, and the limits it keeps."""

from pathlib import Path
from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from parsecaps.config import Auto, Device, Risk, Section

_MEGABYTE = 10**6


class ServeConfig(Section):
    """How to serve: see docs/serve.md for what each key means.

    `runtime` is what runs the model; `auto` is ONNX Runtime where that can, else PyTorch. `batch_size` is 16 for
    PyTorch, 8 for ONNX Runtime. `workers` are threads that run the model; `auto` takes one for each core that torch
    would use. A worker waits `gather_milliseconds` for images that are being read, up to `batch_size` of them.
    `examples` is how many unseen cases of the run the page offers, `review` the file that reviews are kept in.
    """

    risk: Risk | None = None
    device: Device = "auto"
    runtime: Auto | Literal["torch", "onnx"] = "auto"
    workers: PositiveInt | Auto = "auto"
    batch_size: PositiveInt | Auto = "auto"
    gather_milliseconds: NonNegativeFloat = 10.0
    requests: PositiveInt = 64
    files: PositiveInt = 64
    images: PositiveInt = 256
    explained: PositiveInt = 16
    file_bytes: PositiveInt = 100 * _MEGABYTE
    request_bytes: PositiveInt = 200 * _MEGABYTE
    stored_bytes: PositiveInt = 1000 * _MEGABYTE
    seconds: PositiveFloat = 60.0
    hosts: tuple[str, ...] = ()
    examples: NonNegativeInt = 6
    review: Path | None = None
    review_bytes: PositiveInt = 20_000 * _MEGABYTE

    def limits(self) -> dict[str, int | float]:
        """What a client has to keep to."""
        names = ("files", "images", "explained", "file_bytes", "request_bytes", "requests", "seconds")
        return {name: getattr(self, name) for name in names}
