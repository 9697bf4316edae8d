"""What the routes ask: files in, answers out, by the same readers and the same model as `parsecaps predict`.

Explanations are those of `parsecaps explain`, without what may name a patient.
"""

import asyncio
import ctypes
import gc
import hashlib
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import torch
from starlette.requests import Request
from torch import Tensor

from parsecaps import __version__
from parsecaps.data.preparation import Preparation, dequantise
from parsecaps.data.reader_pool import READERS
from parsecaps.data.reading import prepare_image
from parsecaps.explain.explanation import Explanation
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile, find_files
from parsecaps.prediction.predict import answer, answers_of_output
from parsecaps.report.explanation_document import (
    VERSION,
    ExplanationDocument,
    ModelPart,
    ReasoningPart,
    explanation_document,
)
from parsecaps.serve.batcher import Batcher
from parsecaps.serve.documents import ExplainQuestion
from parsecaps.serve.guard import ProblemError, ServeMetrics, overloaded
from parsecaps.serve.review_store import ReviewStore
from parsecaps.serve.runtime import Network, choose_runtime
from parsecaps.serve.settings import ServeConfig
from parsecaps.serve.uploads import Arrival, Spool, Upload, in_time
from parsecaps.system.threads import most_threads

S = TypeVar("S")
T = TypeVar("T")
_LIBRARY_WORDS = re.compile(r"(is a damaged DICOM) \(.*\)(?=; )", re.DOTALL)
_LIMITS = {"files", "images", "explained", "file_bytes", "request_bytes", "requests", "seconds"}  # that clients see
_TIDY_SECONDS = 5.0
_IN_MEMORY = 16  # images of a request that are read at a time
_BATCH_SIZES = {"torch": 16, "onnx": 8}  # of a batch's time per image, the larger is hardly better
_FIRST_IMAGE = bytes.fromhex(  # a PNG of 2 x 2 pixels
    "89504e470d0a1a0a0000000d494844520000000200000002080000000057dd52f8"
    "0000000e49444154789c636c60606260000002920084f77ca3580000000049454e44ae426082"
)


@dataclass(frozen=True, eq=False)
class Picture:
    """An image of a request: its file or its error, and its levels (channels, size, size) as uint8 once it is read."""

    upload: Upload
    image: ImageFile
    levels: Tensor | None = None


class Service:
    """A model that answers requests during its `lifespan`.

    Explanations change and watch the network while it runs, so they have a copy of their own, and a thread.
    """

    def __init__(self, folder: str | Path, settings: ServeConfig) -> None:
        self.settings, self.metrics = settings, ServeMetrics()
        self.reviews = None if settings.review is None else ReviewStore(settings.review)
        self.model = Model.load(folder, settings.device)
        self.explaining = Model.load(folder, settings.device)
        self.explaining.memory, self.explaining.strict_cost  # noqa: B018 (read now: what is wrong is said at the start)
        if settings.risk is not None:
            self.model.calibration.threshold(settings.risk)
        preparation = self.model.preparation
        self._black = torch.zeros(preparation.channels, preparation.size, preparation.size, dtype=torch.uint8)
        (said,) = self._answers(partial(answer, self.model), [self._black])
        if error := said.get("error"):
            raise ValueError(f"{self.model.folder}: {error}")
        self.runtime = choose_runtime(self.model, settings.runtime)
        self.spool = Spool(settings.stored_bytes)
        self.num_requests = 0
        self.is_started = self.is_stopping = False
        on_gpu = self.model.device.type != "cpu"
        chosen = settings.batch_size
        self.batch_size = chosen if chosen != "auto" else _BATCH_SIZES[self.runtime.name]
        workers = settings.workers if settings.workers != "auto" else 1 if on_gpu else most_threads()
        self.batcher: Batcher[Tensor, dict[str, Any]] = Batcher(
            partial(self._answers, self.runtime.network),
            workers=workers,
            batch_size=self.batch_size,
            gather_seconds=settings.gather_milliseconds / 1000,
            observe=self.metrics.batches.observe,
        )
        self._reading = ThreadPoolExecutor(READERS, "parsecaps reading")  # each waits for a reader of its own
        self._explaining = ThreadPoolExecutor(1, "parsecaps explaining")
        self.metrics.watch("queue_images", "Images that wait for the model.", lambda: self.batcher.num_waiting)
        self.metrics.watch("requests_at_a_time", "Requests that are being answered.", lambda: self.num_requests)

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Start the workers and the readers, and let each have its first work: a full batch takes memory that stays.

        At the end the threads end too, and what uploads may be left is removed.
        """
        if self.model.device.type == "cpu":
            torch.set_num_threads(1)  # a worker has one core
        self.batcher.start()
        uploads = [Upload(None, self.spool.new_path(), _FIRST_IMAGE) for _ in range(READERS)]
        await self.predict(uploads)
        full = [self._black] * self.batch_size
        await asyncio.gather(*(self.batcher.submit(full) for _ in self.batcher.threads))
        for upload in uploads:
            upload.remove()
        tidying = asyncio.create_task(_give_memory_back())
        gc.collect()
        gc.freeze()  # else Python walks over all of torch every few seconds, and 32 clients wait twice as long for it
        self.is_started = True
        yield
        self.is_stopping = True
        tidying.cancel()
        for stop in (self._reading.shutdown, self.batcher.stop):
            await asyncio.to_thread(stop)
        self._explaining.shutdown(wait=False, cancel_futures=True)
        self.spool.close()
        gc.unfreeze()

    @property
    def is_ready(self) -> bool:
        return self.is_started and not self.is_stopping and self.batcher.is_answering(self.settings.seconds)

    @cached_property
    def weights(self) -> str:
        assert self.model.folder is not None
        with open(self.model.folder / "model.safetensors", "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"

    @cached_property
    def notes(self) -> list[str]:
        calibration, risk = self.model.calibration, self.settings.risk
        notes = [calibration.note, None if risk is None else calibration.threshold(risk).note]
        return [note for note in notes if note]

    def about_model(self) -> dict[str, Any]:
        """The document of GET /api/model."""
        model, risk = self.model, self.settings.risk
        calibration = model.calibration
        return {
            "kind": type(model.network).__name__,
            "version": __version__,
            "weights": self.weights,
            "classes": list(model.classes),
            "concepts": list(model.concepts),
            "preparation": model.preparation.to_dict(),
            "calibration": {
                "temperature": calibration.temperature,
                "patients": None if calibration.quantiles is None else calibration.quantiles.patients,
                "risk": risk,
                "threshold": None if risk is None else calibration.threshold(risk).probability,
                "note": calibration.note,
            },
            "runtime": {"name": self.runtime.name, "version": self.runtime.version, "note": self.runtime.note},
            "limits": self.settings.model_dump(include=_LIMITS),
            "review": self.reviews is not None,
        }

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[float]:
        """Count as a request that is being answered; gives the time at which it has to be, by the event loop."""
        limits = self.settings
        if self.is_stopping:
            raise overloaded("the server is stopping; ask another one, or later")
        if self.num_requests >= limits.requests:
            raise overloaded(f"{limits.requests:,} requests are being answered already; try again later")
        self.num_requests += 1
        try:
            yield asyncio.get_running_loop().time() + limits.seconds
        finally:
            self.num_requests -= 1

    def answering(self, end: float) -> AbstractAsyncContextManager[None]:
        late = f"no answer within {self.settings.seconds:g} seconds; send fewer images at a time"
        return in_time(end, ProblemError(504, "too-slow", late))

    @asynccontextmanager
    async def files_of(self, request: Request, most_files: int) -> AsyncIterator[list[Upload]]:
        """The files of a request while it is answered, within the limits on requests, files and time."""
        seconds = f"{self.settings.seconds:g} seconds"
        late = ProblemError(408, "too-slow", f"the request did not arrive within {seconds}; send less at a time")
        async with self.admitted() as end:
            with closing(Arrival(self.spool, self.settings, most_files)) as arrival:
                async with in_time(end, late):
                    uploads = await arrival.receive(request)
                async with self.answering(end):
                    yield uploads

    async def predict(self, uploads: Sequence[Upload]) -> list[dict[str, Any]]:
        """A result for each image of some files, in order; no more than a few of them are in memory at a time."""
        results: list[dict[str, Any]] = []
        async for pictures in self._read_in_parts(uploads):
            levels = [picture.levels for picture in pictures if picture.levels is not None]
            parts = [levels[start : start + self.batch_size] for start in range(0, len(levels), self.batch_size)]
            found = chain.from_iterable(await asyncio.gather(*map(self.batcher.submit, parts)))
            for picture in pictures:
                results.append(
                    result(picture, {"error": picture.image.error} if picture.levels is None else next(found))
                )
        refused = sum(result["error"] is not None for result in results)
        self.metrics.count_images(len(results) - refused, refused)
        return results

    async def explain(self, uploads: Sequence[Upload], how: ExplainQuestion) -> dict[str, Any]:
        """The document of all images of some files that can be explained, with a line for each that cannot."""
        left, model, risk = self.settings.explained, self.explaining, self.settings.risk
        cases: list[Explanation] = []
        errors: list[str] = []
        for upload in uploads:
            (found,) = await self._in_readers(partial(look, most=left), [upload])
            for picture in found:
                try:
                    if picture.image.error:
                        raise ValueError(picture.image.error)
                    cases.append(await self._in_turn(explain, model, picture, how, risk))
                    left -= 1
                except (OSError, ValueError) as error:
                    errors.append(redact(str(error), upload))
        self.metrics.count_images(len(cases), len(errors))
        return await self._in_turn(document, model, cases, errors, how)

    async def _in_turn(self, function: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._explaining, function, *arguments)

    def _answers(self, network: Network, levels: list[Tensor]) -> list[dict[str, Any]]:
        return answers_of_output(self.model, network(dequantise(torch.stack(levels))), self.settings.risk)

    async def _read_in_parts(self, uploads: Sequence[Upload]) -> AsyncIterator[list[Picture]]:
        """Images of some files, read or with an error, a few at a time."""
        size, left = _IN_MEMORY, self.settings.images
        for start in range(0, len(uploads), size):
            some = uploads[start : start + size]
            with self.batcher.expecting(len(some)):
                opened = await self._in_readers(self._open, some)
            pictures: list[Picture] = []
            for upload, each in zip(some, opened, strict=True):
                kept = len(each) <= left
                pictures += each if kept else [too_many(upload, self.settings.images)]
                left -= len(each) if kept else 0
            for first in range(0, len(pictures), size):
                part = pictures[first : first + size]
                if any(picture.levels is None and not picture.image.error for picture in part):
                    with self.batcher.expecting(len(part)):
                        part = await self._in_readers(partial(read, preparation=self.model.preparation), part)
                yield part

    def _open(self, upload: Upload) -> list[Picture]:
        found = look(upload, self.settings.images)
        if len(found) == 1:
            found = [read(found[0], self.model.preparation)]
            upload.remove()
        return found

    async def _in_readers(self, function: Callable[[S], T], items: Sequence[S]) -> list[T]:
        loop = asyncio.get_running_loop()
        return await asyncio.gather(*(loop.run_in_executor(self._reading, function, item) for item in items))


async def _give_memory_back() -> None:
    """Now and then, let glibc return what batches of many sizes have left in pieces: it would grow for minutes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    while trim is not None:
        await asyncio.sleep(_TIDY_SECONDS)
        await asyncio.to_thread(trim, 0)


def look(upload: Upload, most: int) -> list[Picture]:
    """The images of a file, not read yet; one error where there are none, or more than so many."""
    upload.write_out()
    found = list(islice(find_files([upload.path]), most + 1))
    if len(found) > most:
        return [too_many(upload, most)]
    return [Picture(upload, each) for each in found]


def read(picture: Picture, preparation: Preparation) -> Picture:
    """The image with its levels, unless it has them or an error already."""
    image = picture.image
    if image.error or picture.levels is not None:
        return picture
    try:
        return replace(picture, levels=prepare_image(image.path, image.frame, preparation.levels))
    except (OSError, ValueError) as error:
        return replace(picture, image=image._replace(error=str(error)))


def too_many(upload: Upload, most: int) -> Picture:
    """The error of a file with more images than a request may still have."""
    error = f"{upload.shown} would make it more than {most:,} images; send fewer in a request"
    return Picture(upload, ImageFile(upload.path, None, error))


def redact(error: str, upload: Upload) -> str:
    """An error as its sender may read it: by the name that was sent, and without a library's words about a DICOM.

    Those may quote the header, which names a patient.
    """
    return _LIBRARY_WORDS.sub(r"\1", error.replace(str(upload.path), upload.shown))


def result(picture: Picture, said: dict[str, Any]) -> dict[str, Any]:
    """The document of one image and what the model says of it."""
    upload, error = picture.upload, said.get("error")
    place = {"file": upload.number, "name": upload.name, "frame": picture.image.frame}
    names = {"class": "label", "probabilities": "probabilities", "concepts": "concepts"}
    names |= {"set": "possible", "abstain": "abstain"}
    return {**place, "error": error and redact(error, upload), **{name: said.get(names[name]) for name in names}}


def explain(model: Model, picture: Picture, how: ExplainQuestion, risk: float | None) -> Explanation:
    """One image, explained under the name that was sent."""
    upload, frame = picture.upload, picture.image.frame
    name = upload.name or f"image {upload.number + 1}"
    return model.explain(
        upload.path,
        frame=frame,
        name=name if frame is None else f"{name}#{frame}",
        risk=None if how.strict else risk,  # it is promised for the ordinary network only
        **how.model_dump(exclude={"pictures"}),
    )


def document(model: Model, cases: list[Explanation], errors: list[str], how: ExplainQuestion) -> dict[str, Any]:
    """The explanation document of some cases, or of none; training cases have no file names in it."""
    if cases:
        title = cases[0].name if len(cases) == 1 else f"{len(cases):,} cases"
        found = explanation_document(cases, title=title, errors=errors, pictures=how.pictures, names=False)
        return found.to_dict()
    reasoning = model.reasoning
    part = ModelPart(
        kind=type(model.network).__name__,
        classes=list(model.classes),
        concepts=list(model.concepts),
        image_size=model.preparation.size,
        reasoning=None if reasoning is None else ReasoningPart(**reasoning.as_dict()),
    )
    empty = ExplanationDocument(version=VERSION, title="", model=part, cases=[], prototypes=[], errors=errors)
    return empty.to_dict()
