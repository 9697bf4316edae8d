"""Timing on a machine that is never quiet: competitors take turns, and the best of several turns counts."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Task = Callable[[], object]

MATMUL_WIDTH = 2048


@dataclass(frozen=True)
class Effort:
    """How long to measure: every task gets at least `rounds` turns, and more until `seconds` have passed.

    A turn lasts at least `turn` seconds; a short task is called as often as fits in.
    """

    rounds: int = 5
    seconds: float = 5.0
    turn: float = 0.05


QUICK = Effort(rounds=2, seconds=0.5, turn=0.02)


def best_seconds(tasks: Mapping[str, Task], effort: Effort) -> dict[str, float]:
    """The shortest call of each task, after one that does not count.

    A turn of each follows a turn of every other, so that a slow moment of the machine hits all alike.

    >>> sorted(best_seconds({"a": lambda: None, "b": lambda: None}, QUICK))
    ['a', 'b']
    """
    best = dict.fromkeys(tasks, float("inf"))
    for task in tasks.values():
        task()
    start, rounds = time.perf_counter(), 0
    while rounds < effort.rounds or time.perf_counter() - start < effort.seconds:
        for name, task in tasks.items():
            begin = now = time.perf_counter()
            while True:
                last = now
                task()
                now = time.perf_counter()
                best[name] = min(best[name], now - last)
                if now - begin >= effort.turn:
                    break
        rounds += 1
    return best


class MatmulPeak:
    """The machine's peak: float32 products of two square matrices, measured between the turns of other tasks.

    Call it as a task; `flops_per_second` is that of the fastest call so far.
    """

    def __init__(self, width: int = MATMUL_WIDTH) -> None:
        self.width = width
        self.a, self.b = torch.rand(2, width, width).unbind()
        self.best = float("inf")

    def __call__(self) -> None:
        start = time.perf_counter()
        torch.mm(self.a, self.b)
        self.best = min(self.best, time.perf_counter() - start)

    @property
    def flops_per_second(self) -> float:
        return 2 * self.width**3 / self.best
