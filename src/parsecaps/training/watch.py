"""What happens between the steps: progress, checkpoints, the end of an epoch, Ctrl-C, and a loss gone wrong."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import distributed

from parsecaps.data.batches import Batches
from parsecaps.data.cases import DataSet
from parsecaps.data.splits import relative_name
from parsecaps.training.checkpoint import Position, restore_running, save_checkpoint, write_tensors
from parsecaps.training.module import TrainingModule
from parsecaps.training.run_folder import RunFolder, write_history

_SECONDS = 0.5  # between two reports of progress
_LOG_STEPS = 50  # between two points in TensorBoard


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


class DivergedError(ValueError):
    """The loss is not a number any more, or far larger than it was."""


class Stopped(Exception):  # noqa: N818 - no error: somebody pressed Ctrl-C
    """Training was stopped on demand, after a checkpoint was written."""


class Watch(Callback):
    """Keeps a run safe and says how it is doing.

    With several processes, all of them agree every few steps on whether to stop or to save; a process on its own
    looks after each step.
    """

    def __init__(
        self,
        folder: RunFolder,
        position: Position,
        running: dict[str, Any] | None,
        data: DataSet,
        batches: Batches,
        *,
        validates: bool,
        epochs: int,
        patience: int,
        checkpoint_seconds: float,
        tell: Callable[[str], None],
        on_progress: Callable[[Progress], None],
    ) -> None:
        self.folder, self.position, self.running = folder, position, running
        self.data, self.batches, self.validates = data, batches, validates
        self.epochs, self.patience, self.checkpoint_seconds = epochs, patience, checkpoint_seconds
        self.tell, self.on_progress = tell, on_progress  # `log` is a name that Lightning takes
        self.stop_wanted = False
        self.started = self.saved = self.reported = self.epoch_started = time.monotonic()
        self.first_step = 0

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, TrainingModule)
        if self.running is not None:
            restore_running(module, trainer.optimizers[0], self.running)
        self.started = self.saved = self.epoch_started = time.monotonic()
        self.first_step = module.step

    def on_train_epoch_start(self, trainer: Trainer, module: LightningModule) -> None:
        self.epoch_started = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        assert isinstance(module, TrainingModule)
        self.position.batch += 1
        last = self.position.batch == len(self.batches)
        alone = trainer.world_size == 1 and module.device.type == "cpu"
        if not (alone or last or self.position.batch % 10 == 0):
            return
        stop, save = self._agree(module)
        if (stop or save) and not last:  # after the last batch of an epoch, its end saves
            self._save(trainer, module)
            if stop:
                raise Stopped
        self._report(trainer, module)

    def on_train_epoch_end(self, trainer: Trainer, module: LightningModule) -> None:
        assert isinstance(module, TrainingModule)
        train = module.train_tally.summed().values(module.objective)
        row = {"epoch": float(self.position.epoch + 1), "learning_rate": module.learning_rate(module.step - 1)}
        row |= {f"train_{name}": value for name, value in train.items()}
        if self.validates:
            row |= {f"val_{name}": value for name, value in module.val_tally.summed().values(module.objective).items()}
        row["seconds"] = round(time.monotonic() - self.epoch_started, 3)
        module.train_tally.reset()
        position = self.position
        position.history.append(row)
        position.epoch, position.batch = position.epoch + 1, 0
        waited = len(position.history) - 1 - position.best
        position.done = position.epoch == self.epochs or 0 < self.patience <= waited
        if trainer.is_global_zero:
            if waited == 0:
                write_tensors(self.folder.best(position.epoch), module.weights())
            self._log_row(trainer, module.step, row)
        self._save(trainer, module)
        if trainer.is_global_zero:
            self.folder.forget_all_but(position.best + 1)
            write_history(self.folder.history, position.history)
            self.tell(_line(row, self.epochs, position.chooses and waited == 0))
        if position.done:
            trainer.should_stop = True
        elif self._agree(module)[0]:
            raise Stopped

    def _agree(self, module: TrainingModule) -> tuple[bool, bool]:
        """Whether to stop and whether to save; raises where a step went wrong."""
        due = time.monotonic() - self.saved >= self.checkpoint_seconds
        flags = torch.stack([module.bad_step.cpu(), torch.tensor(self.stop_wanted), torch.tensor(due)])
        if module.trainer.world_size > 1:
            flags = flags.to(module.device)
            distributed.all_reduce(flags, distributed.ReduceOp.MAX)
        bad, stop, save = flags.tolist()
        if bad >= 0:
            raise DivergedError(self._what_went_wrong(bad))
        return bool(stop), bool(save)

    def _what_went_wrong(self, step: int) -> str:
        epoch, batch = divmod(step, len(self.batches))
        names = ", ".join(relative_name(self.data, self.data.cases[i]) for i in self.batches.rows_in(epoch, batch))
        kept = f"the last good checkpoint is {self.folder.last}" if self.folder.last.exists() else "none was saved yet"
        return (
            f"the loss is not finite or a hundred times as large as at first, in epoch {epoch + 1}, batch {batch + 1} "
            f"({names}); {kept}; look at these images, or train with a lower training.learning_rate"
        )

    def _save(self, trainer: Trainer, module: TrainingModule) -> None:
        save_checkpoint(self.folder.last, module, trainer.optimizers[0], self.position)
        self.saved = time.monotonic()

    def _report(self, trainer: Trainer, module: TrainingModule) -> None:
        now = time.monotonic()
        plot = module.step % _LOG_STEPS == 0
        if not trainer.is_global_zero or not (plot or now - self.reported >= _SECONDS):
            return
        values = module.train_tally.values(module.objective)
        if plot:
            self._log_row(
                trainer,
                module.step,
                {"running_loss": values["loss"], "learning_rate": module.learning_rate(module.step - 1)},
            )
        pace = (now - self.started) / max(1, module.step - self.first_step)
        left = pace * (self.epochs * len(self.batches) - module.step)
        self.reported = now
        place = self.position.epoch + 1, self.epochs, self.position.batch, len(self.batches)
        self.on_progress(
            Progress(*place, values["loss"], values["accuracy"], module.learning_rate(module.step - 1), left)
        )

    def _log_row(self, trainer: Trainer, step: int, row: dict[str, float]) -> None:
        for logger in trainer.loggers:
            logger.log_metrics(row, step=step)


@contextmanager
def ctrl_c_stops(watch: Watch) -> Iterator[None]:
    """Let the first Ctrl-C ask `watch` to save and stop; the second one interrupts at once."""
    if threading.current_thread() is not threading.main_thread():  # only there can signals be handled
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def ask(number: int, frame: Any) -> None:
        watch.stop_wanted = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _line(row: dict[str, float], epochs: int, is_best: bool) -> str:
    text = f"epoch {row['epoch']:.0f}/{epochs}: loss {row['train_loss']:.4f}, accuracy {row['train_accuracy']:.1%}"
    if "val_loss" in row:
        text += (
            f"; validation loss {row['val_loss']:.4f}, accuracy {row['val_accuracy']:.1%}, "
            f"balanced {row['val_balanced_accuracy']:.1%}{' (best)' if is_best else ''}"
        )
    return f"{text}; {row['seconds']:.1f} s"
