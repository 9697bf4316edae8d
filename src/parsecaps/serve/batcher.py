"""Images of many requests, gathered into batches for a few threads that run the model.

Each worker computes with one thread. On two cores, two workers with a batch each are as fast as one with both cores,
never wait for each other, and lose little where another process takes a core for a while.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Answers = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class _Job:
    """Images of one request (n, channels, size, size), and who waits for what the model says of each."""

    images: Tensor
    future: "asyncio.Future[Answers]"


class Batcher:
    """Threads that call `answer` with batches of images, and give each request what is its own.

    `answer` takes images (n, channels, size, size) and gives one answer for each. `observe` is told the size of each
    batch. Requests submit from the thread of the event loop.
    """

    def __init__(
        self,
        answer: Callable[[Tensor], Answers],
        *,
        workers: int,
        batch_size: int,
        gather_seconds: float,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer, self._observe = answer, observe
        self._batch_size, self._gather_seconds = batch_size, gather_seconds
        self._changed = threading.Condition()
        self._waiting: deque[_Job] = deque()
        self._expected = 0  # images that are being read, and will be here soon
        self._idle = 0
        self._stopping = False
        self._began: dict[int, float] = {}  # when each busy worker took its batch
        self._threads = [
            threading.Thread(target=self._work, args=(number,), name=f"parsecaps model {number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        """Start the workers."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End the workers when what waits is answered."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    @property
    def num_waiting(self) -> int:
        """Images that wait for a worker."""
        with self._changed:
            return self._images()

    def is_answering(self, seconds: float) -> bool:
        """Whether the workers live, and none is busy with one batch for longer than so many seconds."""
        oldest = min(self._began.copy().values(), default=float("inf"))
        return all(thread.is_alive() for thread in self._threads) and time.monotonic() - oldest < seconds

    @contextmanager
    def expecting(self, count: int) -> Iterator[None]:
        """Say that so many images are being read, so that a worker waits for them a little."""
        with self._changed:
            self._expected += count
        try:
            yield
        finally:
            with self._changed:
                self._expected -= count
                if self._waiting and not self._expected:
                    self._changed.notify_all()

    async def submit(self, images: Tensor) -> Answers:
        """What the model says of each of some images (n, channels, size, size), n at most the batch size."""
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._waiting.append(_Job(images, future))
            self._changed.notify()
        return await future

    def _work(self, number: int) -> None:
        while batch := self._next_batch():
            self._began[number] = time.monotonic()
            images = torch.cat([job.images for job in batch])
            self._observe(len(images))
            try:
                found = self._answer(images)
            except Exception as error:  # whoever waits must hear of it, and the worker goes on
                self._deliver(batch, error)
            else:
                self._deliver(batch, found)
            del batch, images
            self._began.pop(number, None)

    def _next_batch(self) -> list[_Job]:
        """Jobs to do together; none when the work is over."""
        with self._changed:
            self._idle += 1
            try:
                while True:
                    if self._waiting:
                        self._gather()
                        if batch := self._take(self._share()):
                            return batch
                    elif self._stopping:
                        return []
                    else:
                        self._changed.wait()
            finally:
                self._idle -= 1
                if self._waiting:
                    self._changed.notify()

    def _gather(self) -> None:
        """Wait a little for images that are being read."""
        end = time.monotonic() + self._gather_seconds
        while self._expected and self._images() < self._share() and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)

    def _images(self) -> int:
        return sum(len(job.images) for job in self._waiting)

    def _share(self) -> int:
        """How many images a worker takes: its part of all that are near, so that no other worker stays idle."""
        near = self._images() + self._expected
        return max(1, min(self._batch_size, -(-near // max(1, self._idle))))

    def _take(self, most: int) -> list[_Job]:
        batch: list[_Job] = []
        size = 0
        while self._waiting:
            count = len(self._waiting[0].images)
            if batch and size + count > most:
                break
            job = self._waiting.popleft()
            if not job.future.cancelled():  # nobody waits for it any more
                batch.append(job)
                size += count
        return batch

    def _deliver(self, batch: list[_Job], found: Answers | Exception) -> None:
        """Hand the answers over to the event loop, all in one step."""

        def set_results() -> None:
            start = 0
            for job in batch:
                stop = start + len(job.images)
                if job.future.done():
                    pass
                elif isinstance(found, Exception):
                    job.future.set_exception(found)
                else:
                    job.future.set_result(found[start:stop])
                start = stop

        with suppress(RuntimeError):  # the loop is closed: the server was ended at once
            batch[0].future.get_loop().call_soon_threadsafe(set_results)
