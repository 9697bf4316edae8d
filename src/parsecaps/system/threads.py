"""How many threads torch computes with: the free cores at the start, as more threads would wait for each other."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

_SAMPLE_SECONDS = 0.4
_IDLE = (3, 4)  # columns of /proc/stat: doing nothing, and waiting for a disk


class Threads(NamedTuple):
    """How many threads, and the reason for it."""

    number: int
    why: str

    def __str__(self) -> str:
        return f"threads: {self.number} ({self.why})"


def choose_threads(processes: int = 1) -> Threads:
    """The number for each of so many processes on this machine; `OMP_NUM_THREADS` and `set_num_threads` are heeded."""
    most = torch.get_num_threads()
    if os.environ.get("OMP_NUM_THREADS"):
        return Threads(most, "OMP_NUM_THREADS says so")
    cores, quota = allowed_cores(), min(_quotas(Path("/")), default=None)
    busy = min(busy_cores(), cores)
    free = cores - busy if quota is None else min(cores - busy, quota)
    why = f"{busy:.1f} of {cores} cores are in use by others"
    why += "" if quota is None else f", and the control group allows {quota:g}"
    why += "" if processes == 1 else f"; {processes} processes share the rest"
    return Threads(max(1, min(most, round(free / processes))), why)


def most_threads() -> int:
    """As many as this process may ever use, whatever else runs now: for a server, which outlives what is busy."""
    most, quota = torch.get_num_threads(), min(_quotas(Path("/")), default=None)
    return most if quota is None or os.environ.get("OMP_NUM_THREADS") else max(1, min(most, round(quota)))


@contextmanager
def using_threads(number: int) -> Iterator[None]:
    """Let torch compute with so many threads, and afterwards with as many as before."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def allowed_cores() -> int:
    """The cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def busy_cores() -> float:
    """How many cores are busy with other work, by /proc/stat, or else by the load of the last minute."""
    try:
        idle, own, began = _idle_seconds(), time.process_time(), time.monotonic()
        time.sleep(_SAMPLE_SECONDS)
        idle = [after - before for before, after in zip(idle, _idle_seconds(), strict=True)]
        seconds, own = time.monotonic() - began, time.process_time() - own
        return max(0.0, len(idle) - (sum(idle) + own) / seconds)
    except (AttributeError, OSError, ValueError, IndexError):
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _idle_seconds() -> list[float]:
    """How long each core of this process has been idle since the start of the machine."""
    allowed = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    lines = map(str.split, Path("/proc/stat").read_text(encoding="ascii").splitlines())
    ticks = [[int(line[1 + column]) for column in _IDLE] for line in lines if line and line[0] in allowed]
    return [sum(each) / os.sysconf("SC_CLK_TCK") for each in ticks]


def _quotas(root: Path) -> list[float]:
    """The cores that each control group around this process allows; none where there is no limit.

    Not `joblib.cpu_count`: it sees the outermost group alone (a systemd service has its own), and 0.5 cores as 1.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    found = []
    for _, controllers, place in (line.split(":", 2) for line in lines):
        if not controllers or "cpu" in controllers.split(","):
            top = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
            inner = top / place.strip("/")
            groups = [group for group in (inner, *inner.parents) if group.is_relative_to(top)]
            found += [quota for group in groups for quota in _quota(group)]
    return found


def _quota(group: Path) -> list[float]:
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
        else:
            quota, period = ((group / f"cpu.cfs_{each}_us").read_text(encoding="ascii") for each in ("quota", "period"))
        return [int(quota) / int(period)] if int(quota) > 0 else []
    except (OSError, ValueError):  # no such file, or no limit: max
        return []
