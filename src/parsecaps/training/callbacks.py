"""Who is told what while a run trains, and how it may fail."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from parsecaps.types import ProgressCallback, silent


class DivergedError(ValueError):
    """The loss is not finite, or far above what it was."""


class Progress(NamedTuple):
    """How a run is doing: both counts start at 1, loss and accuracy are those of the epoch so far."""

    epoch: int
    epochs: int
    batch: int
    batches: int
    loss: float
    accuracy: float
    learning_rate: float
    seconds_left: float


@dataclass(frozen=True)
class Callbacks:
    """Functions that a run calls: `log` with a line, `progress` in an epoch, the others with a count and its total."""

    log: Callable[[str], None] = lambda line: None
    reading: ProgressCallback = silent
    progress: Callable[[Progress], None] = lambda progress: None
    scoring: ProgressCallback = silent
