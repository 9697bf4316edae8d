"""Turns are taken fairly, and the best counts."""

from benchmarks.timing import Effort, best_seconds


def test_tasks_take_turns() -> None:
    turns: list[str] = []
    tasks = {name: lambda name=name: turns.append(name) for name in "abc"}
    best_seconds(tasks, Effort(rounds=3, seconds=0.0, turn=0.0))
    assert "".join(turns) == "abc" * 4  # one turn of each does not count


def test_a_short_task_is_called_often_in_a_turn() -> None:
    calls: list[int] = []
    best_seconds({"short": lambda: calls.append(1)}, Effort(rounds=1, seconds=0.0, turn=0.01))
    assert len(calls) > 10
