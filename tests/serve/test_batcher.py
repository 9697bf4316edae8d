"""Batches: gathered, shared between workers, in order, and never lost."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from parsecaps.serve.batcher import Batcher


def numbers(items: list[int]) -> list[dict[str, Any]]:
    return [{"number": value} for value in items]


def run(batcher: Batcher[int, Any], ask: Callable[[], Any]) -> Any:
    batcher.start()
    try:
        return asyncio.run(ask())
    finally:
        batcher.stop()


def make(answer: Callable[[list[int]], list[dict[str, Any]]] = numbers, **settings: Any) -> Batcher[int, Any]:
    return Batcher(answer, **{"workers": 2, "batch_size": 8, "gather_seconds": 0.002} | settings)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_everybody_gets_their_own(workers: int) -> None:
    sizes: list[int] = []
    batcher = make(workers=workers, observe=sizes.append)

    async def ask() -> list[Any]:
        return await asyncio.gather(*(batcher.submit(range(i, i + i % 4 + 1)) for i in range(200)))

    for i, found in enumerate(run(batcher, ask)):
        assert found == [{"number": value} for value in range(i, i + i % 4 + 1)]
    assert max(sizes) <= 8
    assert sum(sizes) == sum(i % 4 + 1 for i in range(200))
    assert len(sizes) < 200


def test_a_worker_waits_for_what_is_being_read_but_not_for_nothing() -> None:
    sizes: list[int] = []
    batcher = make(workers=1, gather_seconds=5.0, observe=sizes.append)

    async def ask() -> float:
        begun = time.monotonic()
        await batcher.submit([1])  # nothing else is near
        alone = time.monotonic() - begun
        with batcher.expecting(1):
            first = asyncio.create_task(batcher.submit([1]))
            await asyncio.sleep(0.05)
        await asyncio.gather(first, batcher.submit([2]))
        return alone

    assert run(batcher, ask) < 2
    assert sizes == [1, 2]


def test_idle_workers_share_what_is_there() -> None:
    """Of eight images that are near, no worker takes more than its half while the other has nothing to do."""
    sizes: list[int] = []
    both = threading.Barrier(2, timeout=10)

    def answer(batch: list[int]) -> list[dict[str, Any]]:
        both.wait()  # passes only when two batches are under way at a time
        return numbers(batch)

    batcher = make(answer, gather_seconds=1.0, observe=sizes.append)

    async def ask() -> None:
        with batcher.expecting(8):
            waiting = [asyncio.create_task(batcher.submit([i])) for i in range(8)]
            await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    run(batcher, ask)
    assert sum(sizes) == 8
    assert len(sizes) % 2 == 0


def test_a_failure_is_told_and_the_worker_goes_on() -> None:
    def answer(batch: list[int]) -> list[dict[str, Any]]:
        if min(batch) < 0:
            raise ArithmeticError("no")
        return numbers(batch)

    batcher = make(answer, workers=1)

    async def ask() -> list[dict[str, Any]]:
        with pytest.raises(ArithmeticError):
            await batcher.submit([-1])
        return await batcher.submit([3])

    assert run(batcher, ask) == [{"number": 3}]


def test_nobody_computes_for_who_has_left() -> None:
    seen: list[int] = []
    going = threading.Event()

    def answer(batch: list[int]) -> list[dict[str, Any]]:
        seen.extend(batch)
        going.wait(10)
        return numbers(batch)

    batcher = make(answer, workers=1)

    async def ask() -> None:
        first = asyncio.create_task(batcher.submit([1]))
        while not seen:
            await asyncio.sleep(0.001)
        second, third = (asyncio.create_task(batcher.submit([i])) for i in (2, 3))
        await asyncio.sleep(0)
        assert batcher.num_waiting == 2
        assert batcher.is_answering(60)
        assert not batcher.is_answering(0)  # the first one takes longer than that
        second.cancel()
        await asyncio.sleep(0)
        going.set()
        assert [each[0]["number"] for each in await asyncio.gather(first, third)] == [1, 3]

    run(batcher, ask)
    assert seen == [1, 3]


def test_what_waits_is_answered_before_the_end() -> None:
    batcher = make(workers=1)

    async def ask() -> Any:
        waiting = asyncio.create_task(batcher.submit([7]))
        await asyncio.sleep(0)
        await asyncio.to_thread(batcher.stop)
        return await waiting

    assert run(batcher, ask) == [{"number": 7}]
    assert not batcher.is_answering(60)
