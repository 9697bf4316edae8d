"""Time and memory on a busy machine: competitors take turns, and memory is measured in a new process."""

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
    """`rounds` turns or more of at least `turn` seconds for every task, until `seconds` have passed."""

    rounds: int = 5
    seconds: float = 5.0
    turn: float = 0.05


QUICK = Effort(rounds=2, seconds=0.5, turn=0.02)


def all_seconds(tasks: Mapping[str, Task], effort: Effort) -> dict[str, list[float]]:
    """The times of all calls of each task but the first, in turns, so that a slow moment hits all alike."""
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
    """Resident memory now (VmRSS) or at its highest (VmHWM); without /proc, the highest for both."""
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text(encoding="utf-8").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
    import resource  # not on every system; a process starts with the highest of its parent

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
