"""The training loop: epochs of steps, a validation after each, and checkpoints that a run resumes from exactly.

Lightning Fabric handles device, precision and processes. The learning rate and all random numbers of a step follow from
the seed and the step number, so weights and optimizer state are enough to resume.
"""

import csv
import time
from collections import deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict
from statistics import median
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, distributed, nn

from parsecaps.files.writing import remove_files, write_atomically
from parsecaps.model import concept_names
from parsecaps.models import PretrainedModel
from parsecaps.run import BEST_CHECKPOINT, Run
from parsecaps.system.processes import Processes
from parsecaps.system.signals import STOPS, StopRequest, signals_ask
from parsecaps.training.build import build_batches, build_model, build_step, join_processes
from parsecaps.training.callbacks import Callbacks, DivergedError, Progress
from parsecaps.training.checkpoint import FORMAT, Position, read_checkpoint, read_position, write_tensors
from parsecaps.training.objective import EpochMeans
from parsecaps.training.optimizer import Schedule
from parsecaps.training.plan import Plan
from parsecaps.training.starting_weights import describe_origin, take_weights
from parsecaps.training.terms import Loss
from parsecaps.types import Batch

_DIVERGED = 100.0  # times the usual loss
_LEAST_LOSS = 1.0  # a usual loss below counts as this: few hard images may cost a hundred times as much
_RECENT_LOSSES = 20
_REPORT_SECONDS = 0.5  # between two reports of progress
_LOG_STEPS = 50  # between two points in TensorBoard
_SLOWER = 10.0  # times the median of the first steps, which is said
_WARM_UP = 3  # steps that do not count: buffers are made, a compiler may be at work
_WINDOW = 20  # steps behind each median
_AGREE_STEPS = 10  # between two talks of several processes, and two looks at a GPU


class MovingAverage:
    """An exponential moving average of weights; torch's `AveragedModel` makes NaN of buffers that hold -inf."""

    def __init__(self, model: PretrainedModel, highest_decay: float) -> None:
        self.model, self.highest_decay, self.steps = deepcopy(model), highest_decay, 0

    @torch.no_grad()
    def update(self, model: PretrainedModel) -> None:
        """Take a step towards the weights of a model."""
        self.steps += 1
        decay = min(self.highest_decay, self.steps / (self.steps + 10))  # the first weights are soon forgotten
        values = model.state_dict()
        for name, average in self.model.state_dict().items():
            if average.is_floating_point():
                average.lerp_(values[name], 1 - decay)
            else:
                average.copy_(values[name])

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.steps, "weights": self.model.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.steps = state["steps"]
        self.model.load_state_dict(state["weights"])


class LossWatch(nn.Module):
    """Detects losses that are not finite or far above the lowest median of recent losses so far; 0 is skipped."""

    recent: Tensor
    usual: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("recent", torch.zeros(_RECENT_LOSSES))
        self.register_buffer("usual", torch.tensor(torch.inf))

    def add(self, step: int, loss: Tensor) -> Tensor:
        """Whether the loss of a step, of shape (), is wrong."""
        wrong = ~loss.isfinite() | (loss > _DIVERGED * self.usual.clamp(min=_LEAST_LOSS))
        self.recent[step % _RECENT_LOSSES] = loss
        self.usual.copy_(torch.fmin(self.usual, torch.where(self.recent == 0, torch.nan, self.recent).nanmedian()))
        return wrong


class Pace:
    """Compares the median of the latest steps with that of the first ones, and reports once that they are slow."""

    def __init__(self) -> None:
        self._first, self._reported = list[float](), False
        self._latest: deque[float] = deque(maxlen=_WINDOW)

    def add(self, seconds: float) -> tuple[float, float] | None:
        """Add the time of a step; the first time it is `_SLOWER` times as long, return the medians now and then."""
        if len(self._first) < _WARM_UP + _WINDOW:
            self._first.append(seconds)
            return None
        self._latest.append(seconds)
        now, then = median(self._latest), median(self._first[_WARM_UP:])
        if self._reported or len(self._latest) < _WINDOW or now < _SLOWER * then:
            return None
        self._reported = True
        return now, then


class TrainingLoop:
    """Trains a network. With `training.ema`, the moving average of its weights is validated and kept."""

    def __init__(
        self, plan: Plan, run: Run, processes: Processes, callbacks: Callbacks, stop: StopRequest, device: torch.device
    ) -> None:
        self.plan, self.run, self.processes, self.callbacks, self.stop = plan, run, processes, callbacks, stop
        self.device, self.data, self.settings = device, plan.data, Schedule(**dict(plan.config.training))
        torch.manual_seed(self.settings.seed)
        model = build_model(plan)
        self.origin = run.origin if run.is_there else None
        if plan.weights is not None:
            self.origin = take_weights(model, plan.weights, plan.data.classes, concept_names(plan.data, model))
            for line in describe_origin(self.origin):
                callbacks.log(line)
        self.taken = {f"model.{name}" for name in self.origin.layers} if self.origin is not None else set()
        self.step = build_step(plan, model)
        batches = build_batches(plan, "train", processes, self.step.objective.needs)
        assert batches is not None
        self.batches, self.validation = batches, build_batches(plan, "val", processes, self.step.objective.needs)

    def finish(self) -> None:
        """Train what is left, from the last checkpoint on."""
        last = self.run.last_checkpoint
        self.position = Position(chooses=self.settings.keep == "best")
        if last.exists():
            self.position = read_position(read_checkpoint(last), last)
        if self.position.done:
            return
        if last.exists():
            self.callbacks.log(f"going on with epoch {self.position.epoch + 1}, batch {self.position.batch + 1}")
        draws = self.step.objective.needs & {"picture", "decoder"}
        joined = join_processes(
            self.run,
            self.processes,
            self.device,
            precision=self.settings.precision,
            first_step=self.position.step,
            idle_parameters=self.step.model.decoder is not None and not draws,  # it gets no gradient
        )
        with signals_ask(self.stop), joined as fabric:
            self._train(fabric)

    def _train(self, fabric: Fabric) -> None:
        self.fabric, decay = fabric, float(self.settings.ema)
        self.step.to(fabric.device)
        self.average = MovingAverage(self.step.model, decay) if decay else None
        self.optimizer = self.settings.build_optimizer(self.step, self.taken)
        self.means = self._new_means()
        self.losses = LossWatch().to(fabric.device)
        self.bad_step = torch.tensor(-1, device=fabric.device)  # stays on the device, so that no step waits for it
        if self.run.last_checkpoint.exists():
            self._load(read_checkpoint(self.run.last_checkpoint))
        network = fabric.setup_module(self.step)
        self.started = self.saved = self.reported = time.monotonic()
        self.first_step, self.pace = self.position.step, Pace()
        while not self.position.done:
            self._train_epoch(network)
        for logger in fabric.loggers:
            logger.finalize("success")

    def _load(self, stored: Mapping[str, Any]) -> None:
        if len(stored["optimizer"]["param_groups"]) != len(self.optimizer.param_groups):
            raise ValueError(
                "the checkpoint was written with another optimizer than training.optimizer in the run's config.yaml; "
                "set it there as it was (adamw, if the run is older than that setting)"
            )
        try:
            self.step.load_state_dict(stored["weights"])
            self.optimizer.load_state_dict(stored["optimizer"])
            self.losses.load_state_dict(stored.get("losses", self.losses.state_dict()))  # runs from before have none
            if self.average is not None:
                self.average.load_state_dict(stored["average"])
            if self.fabric.is_global_zero:  # which has the sums of all processes
                self.means.load_state_dict(stored["means"])
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{self.run.last_checkpoint} does not fit config.yaml ({reason}); put it back") from None

    def _train_epoch(self, network: nn.Module) -> None:
        position, started = self.position, time.monotonic()
        network.train()
        self._start_timing()
        for batch in self.batches.epoch(position.epoch, start=position.batch):
            self._train_step(network, self.fabric.to_device(batch))
            position.batch += 1
            self._after_step()
        for term in self.step.objective.terms.values():
            term.after_epoch(self.step.model, self.batches, position.epoch)
        rows = {"train": self.means.over_processes().values()}
        if self.validation is not None:
            rows["val"] = self._validate().over_processes().values()
        self._end_epoch(rows, time.monotonic() - started)

    def _train_step(self, network: nn.Module, batch: Batch) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate(self.position.step) * group.get("factor", 1.0)
        words = np.random.SeedSequence([self.settings.seed, self.position.step, self.fabric.global_rank])
        torch.manual_seed(int(words.generate_state(1, np.uint64)[0] >> np.uint64(1)))
        logits, losses = network(batch)
        self.means.add(logits, losses, batch.label)
        objective = self.step.objective
        loss = objective.total({name: Loss(*map(Tensor.detach, each)) for name, each in losses.items()})
        self._note(self.losses.add(self.position.step, loss.float()))
        self.optimizer.zero_grad()
        several = self.fabric.world_size > 1
        self.fabric.backward(objective.shared_total(losses) if several else objective.total(losses))
        norm = nn.utils.clip_grad_norm_(self.step.parameters(), self.settings.max_grad_norm)
        self._note(~norm.isfinite())
        self.optimizer.step()
        self.position.step += 1
        if self.average is not None:
            self.average.update(self.step.model)

    def _after_step(self) -> None:
        last = self.position.batch == len(self.batches)
        alone = self.fabric.world_size == 1 and self.fabric.device.type == "cpu"
        if not (alone or last or self.position.batch % _AGREE_STEPS == 0):
            return
        stop, save = self._agree()
        self._time_steps()
        if (stop or save) and not last:
            self._save()
            if stop:
                self._leave(stop)
        self._report()
        self._start_timing()

    def _leave(self, stop: int) -> None:
        self.fabric.barrier()  # whoever leaves first may take the others with it, and the first process still writes
        place = f"stopped in epoch {self.position.epoch + 1}, after batch {self.position.batch}"
        words = f"{place}; go on with parsecaps train --resume {self.run.folder}"
        raise (STOPS[stop] or KeyboardInterrupt)(*([words] if self.processes.is_main else []))

    def _start_timing(self) -> None:
        self.timed, self.timed_step = time.monotonic(), self.position.step

    def _time_steps(self) -> None:
        slow = self.pace.add((time.monotonic() - self.timed) / max(1, self.position.step - self.timed_step))
        if slow is not None:
            (now, then), threads = slow, torch.get_num_threads()
            self.callbacks.log(
                f"a step takes {now / then:.0f} times as long as at first ({now:.2g} s, not {then:.2g} s): the machine "
                f"is busy, and this run has {threads} thread{'s' * (threads > 1)}; end the other work, or start a new "
                "run, which takes as many threads as are free by then"
            )

    @torch.no_grad()
    def _validate(self) -> EpochMeans:
        assert self.validation is not None
        means, network = self._new_means(), self.step.model if self.average is None else self.average.model
        self.step.eval()
        network.eval()
        for batch in self.validation.epoch(0):
            if len(batch.label):  # the share of a process in a last, small batch may be empty
                batch = self.fabric.to_device(batch)
                with self.fabric.autocast():
                    logits, losses = self.step(batch, network)
                means.add(logits, losses, batch.label)
        return means

    def _end_epoch(self, values: Mapping[str, Mapping[str, float]], seconds: float) -> None:
        position, run = self.position, self.run
        row = {"epoch": float(position.epoch + 1), "learning_rate": self._rate(position.step - 1)}
        for part, measured in values.items():
            row |= {f"{part}_{name}": value for name, value in measured.items()}
        row["seconds"] = round(seconds, 3)
        self.means = self._new_means()
        position.history.append(row)
        position.epoch, position.batch = position.epoch + 1, 0
        waited = len(position.history) - 1 - position.best
        assert self.settings.patience != "auto"
        position.done = position.epoch == self.settings.epochs or 0 < self.settings.patience <= waited
        if self.fabric.is_global_zero:
            if waited == 0:
                model = self.step.model if self.average is None else self.average.model
                write_tensors(run.best_checkpoint(position.epoch), model.state_dict())
            self.fabric.log_dict(row, step=position.step)
        self._save()
        if self.fabric.is_global_zero:
            forget_all_but(run, position.best + 1)
            write_history(run, position.history)
            self.callbacks.log(_line(row, self.settings.epochs, position.chooses and waited == 0))
        if not position.done and (stop := self._agree()[0]):
            self._leave(stop)

    def _agree(self) -> tuple[int, bool]:
        """Whether to stop, an index of `STOPS`, and whether to save; raises if a step went wrong."""
        due = time.monotonic() - self.saved >= self.settings.checkpoint_seconds
        flags = torch.tensor([-1, self.stop.number, due], device=self.fabric.device)
        flags[0] = self.bad_step
        if self.fabric.world_size > 1:
            distributed.all_reduce(flags, distributed.ReduceOp.MAX)
        bad, stop, save = flags.tolist()
        if bad >= 0:
            raise DivergedError(self._describe_divergence(bad))
        return int(stop), bool(save)

    def _describe_divergence(self, step: int) -> str:
        epoch, batch = divmod(step, len(self.batches))
        data, last = self.data, self.run.last_checkpoint
        names = ", ".join(data.name_of(data.cases[i]) for i in self.batches.rows_in(epoch, batch))
        kept = f"the last good checkpoint is {last}" if last.exists() else "none was saved yet"
        return (
            f"the loss is not finite or a hundred times as large as usual, in epoch {epoch + 1}, batch {batch + 1} "
            f"({names}); {kept}; look at these images, or train with a lower training.learning_rate"
        )

    def _save(self) -> None:
        means = self.means.over_processes() if self.position.batch else self.means
        if self.fabric.is_global_zero:
            write_tensors(
                self.run.last_checkpoint,
                {
                    "format": FORMAT,
                    "position": asdict(self.position),
                    "weights": self.step.state_dict(),
                    "average": None if self.average is None else self.average.state_dict(),
                    "optimizer": self.optimizer.state_dict(),
                    "means": means.state_dict(),
                    "losses": self.losses.state_dict(),
                },
            )
        self.saved = time.monotonic()

    def _report(self) -> None:
        now, position = time.monotonic(), self.position
        plot = position.step % _LOG_STEPS == 0
        if not self.fabric.is_global_zero or not (plot or now - self.reported >= _REPORT_SECONDS):
            return
        values, rate = self.means.values(), self._rate(position.step - 1)
        if plot:
            self.fabric.log_dict({"running_loss": values["loss"], "learning_rate": rate}, step=position.step)
        pace = (now - self.started) / max(1, position.step - self.first_step)
        left = pace * (self.settings.epochs * len(self.batches) - position.step)
        self.reported = now
        place = position.epoch + 1, self.settings.epochs, position.batch, len(self.batches)
        self.callbacks.progress(Progress(*place, values["loss"], values["accuracy"], rate, left))

    def _rate(self, step: int) -> float:
        return self.settings.rate(step, len(self.batches))

    def _note(self, wrong: Tensor) -> None:
        self.bad_step = torch.where((self.bad_step < 0) & wrong, self.position.step, self.bad_step)

    def _new_means(self) -> EpochMeans:
        return EpochMeans(self.step.objective, self.step.model.num_classes, self.fabric.device)


def forget_all_but(run: Run, epoch: int) -> None:
    """Remove the weights of all other epochs."""
    remove_files(run.checkpoint_folder, BEST_CHECKPOINT, keep=run.best_checkpoint(epoch).name)


def write_history(run: Run, history: Sequence[Mapping[str, float]]) -> None:
    """Write one row per epoch, all of them each time, so that the file always matches the checkpoint."""
    with write_atomically(run.history_file, private=True) as file:
        writer = csv.DictWriter(file, list(history[0]), lineterminator="\n")
        writer.writeheader()
        for row in history:
            writer.writerow({name: f"{value:.9g}" for name, value in row.items()})


def _line(row: Mapping[str, float], epochs: int, is_best: bool) -> str:
    text = f"epoch {row['epoch']:.0f}/{epochs}: loss {row['train_loss']:.4f}, accuracy {row['train_accuracy']:.1%}"
    if "val_loss" in row:
        text += (
            f"; validation loss {row['val_loss']:.4f}, accuracy {row['val_accuracy']:.1%}, "
            f"balanced {row['val_balanced_accuracy']:.1%}{' (best)' if is_best else ''}"
        )
    return f"{text}; {row['seconds']:.1f} s"
