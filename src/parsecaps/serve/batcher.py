"""Items of many requests, gathered into batches for a few threads: images for the model.

Each worker that runs the model computes with one thread. On two cores, two workers with a batch each are as fast as one
with both cores, never wait for each other, and lose little where another process takes a core for a while.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, NamedTuple, TypeVar

S = TypeVar("S")
T = TypeVar("T")
_FORGETTING = 0.25  # of the difference, at each batch


class _Job(NamedTuple, Generic[S, T]):  # the items of one request
    items: Sequence[S]
    future: "asyncio.Future[list[T]]"


class Batcher(Generic[S, T]):
    """Threads that call `answer` with batches of items, and give each request what is its own.

    `answer` gives one answer for each item. `observe` is told the size of each batch. Requests submit from the thread
    of the event loop.
    """

    def __init__(
        self,
        answer: Callable[[list[S]], list[T]],
        *,
        workers: int,
        batch_size: int,
        gather_seconds: float,
        observe: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._answer, self._observe = answer, observe
        self._batch_size, self._gather_seconds = batch_size, gather_seconds
        self._changed = threading.Condition()
        self._waiting: deque[_Job[S, T]] = deque()
        self._expected = 0  # items that will be here soon
        self._running = 0  # items that are at a worker
        self._usual = 0.0  # items that were under way at a time, lately
        self._idle = 0
        self._stopping = False
        self._began: dict[int, float] = {}  # when each busy worker took its batch
        self.threads = [
            threading.Thread(target=self._work, args=(number,), name=f"parsecaps model {number}", daemon=True)
            for number in range(workers)
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """Stop the workers once all waiting items are answered."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        for thread in self.threads:
            thread.join()

    @property
    def num_waiting(self) -> int:
        with self._changed:
            return self._count()

    def is_answering(self, seconds: float) -> bool:
        """Whether all workers live and none has been busy with one batch for longer than this."""
        oldest = min(self._began.copy().values(), default=float("inf"))
        return all(thread.is_alive() for thread in self.threads) and time.monotonic() - oldest < seconds

    @contextmanager
    def expecting(self, count: int) -> Iterator[None]:
        """Announce items, so that a worker waits for them a little."""
        with self._changed:
            self._expected += count
        try:
            yield
        finally:
            with self._changed:
                self._expected -= count

    async def submit(self, items: Sequence[S]) -> list[T]:
        """Answers to at most a batch of items."""
        future: asyncio.Future[list[T]] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._waiting.append(_Job(items, future))
            if self._idle:
                self._changed.notify()
        return await future

    def _work(self, number: int) -> None:
        while batch := self._next_batch():
            self._began[number] = time.monotonic()
            items = [item for job in batch for item in job.items]
            self._observe(len(items))
            found: list[T] | Exception
            try:
                found = self._answer(items)
            except Exception as error:  # whoever waits must hear of it, and the worker goes on
                found = error
            self._deliver(batch, found)
            self._began.pop(number, None)
            with self._changed:
                self._running -= len(items)
            del batch, items, found

    def _next_batch(self) -> list[_Job[S, T]]:
        """The next jobs to answer together; none at the end."""
        with self._changed:
            self._idle += 1
            batch: list[_Job[S, T]] = []
            while not batch and (self._waiting or not self._stopping):
                if self._waiting:
                    self._gather()
                    batch = self._take(self._share())
                else:
                    self._changed.wait()
            self._idle -= 1
            if self._waiting:
                self._changed.notify()
            return batch

    def _gather(self) -> None:
        """Wait a little for items that are on their way.

        Clients that were just answered ask again at once, so as many are waited for as were under way lately. One that
        asks alone never waits.
        """
        end = time.monotonic() + self._gather_seconds
        while self._count() < self._share() and (left := end - time.monotonic()) > 0:
            self._changed.wait(left)

    def _count(self) -> int:
        return sum(len(job.items) for job in self._waiting)

    def _share(self) -> int:
        """Items for one worker: its part of all that are near, so that no other worker stays idle."""
        near = self._count() + self._expected
        usual = round(self._usual / len(self.threads))
        return max(1, min(self._batch_size, max(usual, -(-near // self._idle))))

    def _take(self, most: int) -> list[_Job[S, T]]:
        # how many items are under way: known at once where they are more than usual, slowly where fewer
        now = self._count() + self._expected + self._running
        self._usual = max(now, self._usual + _FORGETTING * (now - self._usual))
        batch: list[_Job[S, T]] = []
        size = 0
        while self._waiting:
            count = len(self._waiting[0].items)
            if batch and size + count > most:
                break
            job = self._waiting.popleft()
            if not job.future.cancelled():  # nobody waits for it any more
                batch.append(job)
                size += count
        self._running += size
        return batch

    def _deliver(self, batch: list[_Job[S, T]], found: list[T] | Exception) -> None:
        """Hand the answers over to the event loop, all in one step."""

        def set_results() -> None:
            start = 0
            for job in batch:
                stop = start + len(job.items)
                if job.future.done():
                    pass
                elif isinstance(found, Exception):
                    job.future.set_exception(found)
                else:
                    job.future.set_result(found[start:stop])
                start = stop

        with suppress(RuntimeError):  # the loop is closed: the server was ended at once
            batch[0].future.get_loop().call_soon_threadsafe(set_results)
