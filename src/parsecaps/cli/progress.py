"""How far long work is, and with how many threads: a bar on a terminal, a line now and then in a log."""

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from parsecaps.cli.output import console, display

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    from parsecaps.training.callbacks import Callbacks, Progress

LOG_SECONDS = 30.0  # between two lines about the same work in a log


class _LogLines:
    """Lines for a log: one `every` so many seconds; with `ends`, also when a stage begins and when it ends."""

    def __init__(self, *, ends: bool, every: float) -> None:
        self.ends, self.every, self.begun, self.told = ends, every, dict[str, float](), time.monotonic()

    def log(self, line: str) -> None:
        self.told = time.monotonic()
        print(line, file=sys.stderr, flush=True)

    def __call__(self, stage: str, done: int, total: int | None, state: str = "") -> None:
        now, is_new = time.monotonic(), stage not in self.begun
        began = self.begun.setdefault(stage, now)
        is_end = self.ends and not is_new and done == total
        if is_end or (self.ends and is_new) or now - self.told >= self.every:
            took = f" in {now - began:.0f} s" if is_end else ""
            self.log(f"{stage}: {_count(done, total)}{took}{state and f'; {state}'}")


class _ScreenBars:
    """A bar for the stage that is at work; it goes away when the work is done. A total of None is unknown."""

    task: "TaskID"

    def __init__(self, bars: "Bars") -> None:
        self.bars, self.stage = bars, ""

    def log(self, line: str) -> None:
        self.bars.console.print(line, soft_wrap=True)

    def __call__(self, stage: str, done: int, total: int | None, state: str = "") -> None:
        if stage != self.stage:
            for task in self.bars.task_ids:
                self.bars.remove_task(task)
            self.stage, self.task = stage, self.bars.add_task("", words=stage, state="")
        self.bars.update(self.task, completed=done, total=total, state=state or _count(done, total))


def _count(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


@contextmanager
def showing_stages(*, ends: bool = False, visible: bool = True) -> "Iterator[_ScreenBars | _LogLines]":
    """Shows the stages of some work; with `ends`, a log has their beginnings and ends too.

    Of several processes that work together, only one is `visible`.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    out = console(stderr=True)
    if not out.is_terminal:
        yield _LogLines(ends=ends, every=LOG_SECONDS if visible else math.inf)
        return
    words, state = (TextColumn(f"{{task.fields[{name}]}}", style="", markup=False) for name in ("words", "state"))
    with Progress(words, BarColumn(), state, console=out, transient=True, disable=not visible) as bars:
        yield _ScreenBars(bars)


@contextmanager
def showing_training() -> "Iterator[Callbacks]":
    """Tells how a training is doing: loss, accuracy, learning rate and time left."""
    from parsecaps.training.callbacks import Callbacks

    with showing_stages() as show:

        def advance(now: "Progress") -> None:
            show(f"epoch {now.epoch}/{now.epochs}", now.batch, now.batches, describe(now))

        reading, scoring = (partial(show, stage) for stage in ("reading images", "predicting"))
        yield Callbacks(log=show.log, reading=reading, progress=advance, scoring=scoring)


def describe(now: "Progress") -> str:
    """The numbers behind the bar."""
    minutes, seconds = divmod(round(now.seconds_left), 60)
    hours, minutes = divmod(minutes, 60)
    return (
        f"loss {now.loss:.4f}  accuracy {now.accuracy:.1%}  learning rate {now.learning_rate:.2e}  "
        f"{hours}:{minutes:02}:{seconds:02} left"
    )


@contextmanager
def free_threads(processes: int = 1) -> Iterator[None]:
    """Compute with as many threads as there are free cores, and say so where these are fewer than torch would take."""
    import torch

    from parsecaps.system.threads import choose_threads, using_threads

    chosen = choose_threads(processes)
    if chosen.number < torch.get_num_threads():
        display(str(chosen), stderr=True)
    with using_threads(chosen.number):
        yield
