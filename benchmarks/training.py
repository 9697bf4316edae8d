"""Does training keep the cores busy in the model? Steps of a real run beside bare steps, taking turns.

A bare step is the model, its losses, their gradients and the optimizer on one batch that lies ready: no loader, no
augmentation, no progress, no checkpoint. Soon after each epoch has begun, the run waits for a turn of bare steps, so
that both meet the same moods of the machine; meanwhile the loader gets no further ahead than its few batches.
"""

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn

from benchmarks.timing import Task
from parsecaps.config import Config
from parsecaps.system.processes import find_processes
from parsecaps.training import Callbacks, Progress
from parsecaps.training.build import build_batches, build_model, build_step
from parsecaps.training.fit import fit
from parsecaps.training.optimizer import Schedule
from parsecaps.training.plan import Plan

_WARM_UP = 2  # steps of either kind that are not counted


@dataclass(frozen=True)
class TrainingSpeed:
    """Seconds per step: of the run, from the first report of an epoch to its last, and bare; and how many of each."""

    preset: str
    image_size: int
    batch_size: int
    in_run: float
    bare: float
    steps_in_run: int
    bare_steps: int

    @property
    def share(self) -> float:
        """The throughput of the run, as a share of that of bare steps."""
        return self.bare / self.in_run


def time_training(config: Config, *, epochs: int, log: Callable[[str], None] = lambda line: None) -> TrainingSpeed:
    """Train for some epochs on the CPU, in a folder that is thrown away, and between them measure bare steps."""
    quick = config.change("training", epochs=epochs, patience=0)
    with tempfile.TemporaryDirectory() as folder:
        settled, bare = _bare_step(quick)
        turns = _Turns(bare)
        callbacks = Callbacks(log=log, progress=turns.count)
        fit(quick, run_folder=Path(folder) / "run", callbacks=callbacks, device="cpu", score=False)
    if not (turns.steps and turns.bare_steps):
        raise ValueError(f"{epochs} epochs are too few steps to measure; give --epochs more, or more images")
    size, batch_size = settled.model.image_size, settled.training.batch_size
    assert size != "auto"
    assert batch_size != "auto"
    return TrainingSpeed(
        settled.model.preset,
        size,
        batch_size,
        turns.seconds / turns.steps,
        turns.bare_seconds / turns.bare_steps,
        turns.steps,
        turns.bare_steps,
    )


@dataclass
class _Turns:
    """Counts the steps of a run by its progress, and makes bare steps whenever it has begun another epoch."""

    bare: Task
    seconds: float = 0.0
    steps: int = 0
    bare_seconds: float = 0.0
    bare_steps: int = 0
    _epoch: int = 0
    _batch: int = 0
    _since: float = field(default_factory=time.perf_counter)

    def count(self, progress: Progress) -> None:
        now = time.perf_counter()
        if progress.epoch == self._epoch:
            self.seconds += now - self._since
            self.steps += progress.batch - self._batch
        elif self._epoch:
            self._measure(self.seconds - self.bare_seconds)
        self._epoch, self._batch, self._since = progress.epoch, progress.batch, time.perf_counter()

    def _measure(self, seconds: float) -> None:
        for _ in range(_WARM_UP):
            self.bare()
        start = time.perf_counter()
        while (passed := time.perf_counter() - start) < seconds:
            self.bare()
            self.bare_steps += 1
        self.bare_seconds += passed


def _bare_step(config: Config) -> tuple[Config, Task]:
    """The step of this configuration on one batch that lies ready, and the configuration with no `auto` left."""
    processes = find_processes(1)
    plan = Plan.make(config, processes, Callbacks(), torch.device("cpu"))
    step = build_step(plan, build_model(plan)).train()
    batches = build_batches(plan, "train", processes, step.objective.needs)
    assert batches is not None
    batch = next(iter(batches.epoch(0)))
    schedule = Schedule(**dict(plan.config.training))
    optimizer = schedule.build_optimizer(step)

    def bare() -> None:
        optimizer.zero_grad()
        _, losses = step(batch)
        step.objective.total(losses).backward()
        nn.utils.clip_grad_norm_(step.parameters(), schedule.max_grad_norm)
        optimizer.step()

    return plan.config, bare
