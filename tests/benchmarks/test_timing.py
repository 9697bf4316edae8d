"""Turns are taken fairly, and the best counts."""

import time

from benchmarks.timing import Effort, MatmulPeak, best_seconds


def test_tasks_take_turns() -> None:
    turns: list[str] = []
    tasks = {name: lambda name=name: turns.append(name) for name in "abc"}
    best_seconds(tasks, Effort(rounds=3, seconds=0.0, turn=0.0))
    assert "".join(turns) == "abc" * 4  # one turn of each does not count


def test_the_best_turn_counts() -> None:
    naps = iter([0.0, 0.05, 0.001, 0.05])
    best = best_seconds({"nap": lambda: time.sleep(next(naps))}, Effort(rounds=3, seconds=0.0, turn=0.0))
    assert 0.001 <= best["nap"] < 0.05


def test_a_short_task_is_called_often_in_a_turn() -> None:
    calls: list[int] = []
    best_seconds({"short": lambda: calls.append(1)}, Effort(rounds=1, seconds=0.0, turn=0.01))
    assert len(calls) > 10


def test_the_peak_keeps_its_fastest_call() -> None:
    peak = MatmulPeak(width=64)
    peak()
    first = peak.flops_per_second
    peak()
    assert peak.flops_per_second >= first > 0
