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
    """Functions to call: `log` with a line of text, `reading` with images read and of how many, `progress` in an epoch.

    `scoring` gets the images predicted and of how many. Those that are left out do nothing.
    """

    log: Callable[[str], None] = lambda line: None
    reading: ProgressCallback = silent
    progress: Callable[[Progress], None] = lambda progress: None
    scoring: ProgressCallback = silent
