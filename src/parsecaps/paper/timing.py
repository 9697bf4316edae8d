"""Time and memory on a machine that is never quiet.

Competitors take turns; memory is that of a process of its own.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Task = Callable[[], object]


@dataclass(frozen=True)
class Effort:
    """How long to measure: every task gets at least `rounds` turns, and more until `seconds` have passed.

    A turn lasts at least `turn` seconds; a short task is called as often as fits in.
    """

    rounds: int = 5
    seconds: float = 5.0
    turn: float = 0.05


QUICK = Effort(rounds=2, seconds=0.5, turn=0.02)


def all_seconds(tasks: Mapping[str, Task], effort: Effort) -> dict[str, list[float]]:
    """The time of every call of each task, after one that does not count.

    A turn of each follows a turn of every other, so that a slow moment of the machine hits all alike.
    """
    found: dict[str, list[float]] = {name: [] for name in tasks}
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
                found[name].append(now - last)
                if now - begin >= effort.turn:
                    break
        rounds += 1
    return found


def best_seconds(tasks: Mapping[str, Task], effort: Effort) -> dict[str, float]:
    """The shortest call of each task, as in `all_seconds`.

    >>> sorted(best_seconds({"a": lambda: None, "b": lambda: None}, QUICK))
    ['a', 'b']
    """
    return {name: min(seconds) for name, seconds in all_seconds(tasks, effort).items()}


def in_new_process(module: str, *arguments: str) -> dict[str, Any]:
    """Run a module in a new Python, and read the JSON that it prints."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise OSError(f"memory could not be measured: {reason}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def resident(field: str) -> int:
    """Resident memory now (VmRSS) or at its highest (VmHWM); where there is no /proc, the highest for both.

    `ru_maxrss` comes second because a process starts with that of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    import resource  # not on every system

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
