"""From a configuration to a trained model in a run folder; and on from where a run was stopped."""

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from parsecaps.config import Config
from parsecaps.files.writing import close_to_others, plain_name, refuse_links
from parsecaps.model import Model, concept_names, find_device
from parsecaps.models.pretrained import within_weights
from parsecaps.run import Run
from parsecaps.system.processes import Processes, find_processes
from parsecaps.system.signals import StopRequest, signals_ask, sigterm_raises
from parsecaps.system.threads import Threads, choose_threads, using_threads
from parsecaps.training.build import build_batches, build_model, build_step
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.checkpoint import Position, load_weights, read_checkpoint, read_position
from parsecaps.training.choose import Choice
from parsecaps.training.folder import locked, new_run
from parsecaps.training.loop import StoppedError, TrainingLoop, forget_all_but, write_history
from parsecaps.training.optimizer import Schedule
from parsecaps.training.processes import join_processes
from parsecaps.training.start import reopen_run, start_run, write_start
from parsecaps.training.starting_weights import (
    StartingWeights,
    describe_origin,
    read_starting_weights,
    take_weights,
)


def train_run(
    config: Config | None = None,
    *,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Callbacks | None = None,
    threads: int | None = None,
    device: str = "auto",
) -> Run:
    """Train as a configuration says; or `resume` a run.

    A new run gets `run_folder`, which must not hold one yet; without it, the next free name below `runs`. A resumed
    run ends with the same weights as one that was never stopped, bit for bit on a CPU. Ctrl-C saves and raises
    `KeyboardInterrupt`, SIGTERM saves and raises `TerminatedError`; a loss that is not finite raises `DivergedError`.
    With several processes only the first one writes and reports. `threads` is chosen where it is not given; a resumed
    run has those it was started with. `device` is auto (a GPU where there is one), cpu or cuda.
    """
    if (config is None) == (resume is None):
        given = "neither" if config is None else "both"
        raise ValueError(f"{given} of config and resume are given; give train_run one of them")
    callbacks, place = callbacks or Callbacks(), find_device(device)
    with sigterm_raises(), torch.random.fork_rng(devices=[]):
        if resume is not None:
            return _resume(Run(resume), callbacks, place)
        assert config is not None
        return _start(config, run_folder, callbacks, threads, place)


def _start(
    config: Config, run_folder: str | Path | None, callbacks: Callbacks, threads: int | None, device: torch.device
) -> Run:
    processes = find_processes(config.training.devices)
    callbacks = callbacks if processes.is_main else Callbacks()
    name = plain_name(config.data.path) or "run"
    with new_run(run_folder, name, processes) as run, _stopping(run, processes) as stop:
        if not processes.by_torchrun and not processes.is_main:  # the first one has chosen
            threads = run.threads
        chosen = choose_threads(processes.here) if threads is None else Threads(threads, "as in the first fold")
        choice = Choice("threads", str(chosen.number), chosen.why)
        with using_threads(chosen.number):
            start = start_run(run, config, processes, callbacks, device)
            callbacks.log(str(choice))
            # wrong settings show here, before there is a run
            training = _Training(run, processes, callbacks, stop, device, start.weights)
            if processes.is_main:
                start = start._replace(choices=[*start.choices, choice])
                write_start(run, start, processes, training.origin, device)
            return training.finish()


def _resume(run: Run, callbacks: Callbacks, device: torch.device) -> Run:
    refuse_links(run.folder)
    processes = find_processes(run.config.training.devices)
    callbacks = callbacks if processes.is_main else Callbacks()
    if processes.is_main and run.is_trained:
        callbacks.log(f"{run.folder} is trained to the end")
        return run
    if run.threads != torch.get_num_threads():
        callbacks.log(f"threads: {run.threads} (as the run was started with, for the same result)")
    lock = locked(run) if processes.is_main else nullcontext()
    with lock, _stopping(run, processes) as stop, using_threads(run.threads):
        if processes.is_main:
            run.remove_unfinished()
        reopen_run(run, callbacks)
        return _rebuilt(run, processes, callbacks, stop, device).finish()


@contextmanager
def _stopping(run: Run, processes: Processes) -> Iterator[StopRequest]:
    """What a stop does before and beside the loop, which saves: it says where the run is.

    A process that Fabric started does not leave before it has joined the first one, which would wait for it.
    """
    stop, waits_for = StopRequest(), not processes.by_torchrun and not processes.is_main
    try:
        with signals_ask(stop) if waits_for else nullcontext():
            yield stop
    except KeyboardInterrupt as stopped:
        if stopped.args or not processes.is_main:
            raise
        words = "stopped before the training began; nothing is kept"
        if run.is_there:
            words = f"stopped; go on with parsecaps train --resume {run.folder}"
        raise type(stopped)(words) from None


def _rebuilt(
    run: Run, processes: Processes, callbacks: Callbacks, stop: StopRequest, device: torch.device
) -> "_Training":
    """The parts of a run that is resumed; settings that do not fit it, or its checkpoint by far, are refused."""
    last = run.last_checkpoint
    weights = None if last.is_file() else _weights_again(run)
    try:
        with within_weights(last.stat().st_size // 4) if last.is_file() else nullcontext():
            return _Training(run, processes, callbacks, stop, device, weights)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{run.config_file} does not fit the run ({reason}); restore it as the run wrote it") from None


def _weights_again(run: Run) -> StartingWeights | None:
    """The weights that a run was started from, for one that was stopped before its first checkpoint."""
    start, origin = run.config.model.start, run.origin
    if start is None or origin is None:
        return None
    weights = read_starting_weights(start, run.config.model.kind)
    if weights.digest != origin.digest:
        raise ValueError(f"{start} is not as it was when the run was started; put it back, or train anew")
    return weights


class _Training:
    """The parts of a run, put together. A run that goes on from a checkpoint needs no `weights` to start from."""

    def __init__(
        self,
        run: Run,
        processes: Processes,
        callbacks: Callbacks,
        stop: StopRequest,
        device: torch.device,
        weights: StartingWeights | None,
    ) -> None:
        self.run, self.processes, self.callbacks, self.stop = run, processes, callbacks, stop
        self.device = device
        run.is_main = processes.is_main
        torch.manual_seed(run.config.training.seed)
        model = build_model(run)
        self.origin = run.origin if run.is_there else None
        if weights is not None:
            self.origin = take_weights(model, weights, run.data.classes, concept_names(run.data, model))
            for line in describe_origin(self.origin):
                callbacks.log(line)
        self.step = build_step(run, model)
        needs = self.step.objective.needs
        batches = build_batches(run, "train", processes, needs)
        assert batches is not None
        self.batches, self.validation = batches, build_batches(run, "val", processes, needs)
        if self.origin is not None:
            self.step.taken = frozenset(f"model.{name}" for name in self.origin.layers)

    def finish(self) -> Run:
        """Train what is left, and write the result."""
        stored = read_checkpoint(self.run.last_checkpoint) if self.run.last_checkpoint.exists() else None
        position = Position() if stored is None else read_position(stored, self.run.last_checkpoint)
        if stored is not None and not position.done:
            self.callbacks.log(f"going on with epoch {position.epoch + 1}, batch {position.batch + 1}")
        if not position.done:
            position = self._train(position)
        if self.processes.is_main:
            self._write_result(position)
        return self.run

    def _train(self, position: Position) -> Position:
        model = self.step.model
        draws = self.step.objective.needs & {"picture", "decoder"}
        idle = model.decoder is not None and not draws  # the decoder gets no gradient
        schedule = Schedule.build(self.run.config)
        first_step, stop = position.step, self.stop
        with (
            signals_ask(stop),
            join_processes(
                self.run, self.processes, self.device, first_step=first_step, idle_parameters=idle
            ) as fabric,
        ):
            parts = self.step, schedule, self.batches, self.validation
            loop = TrainingLoop(fabric, self.run, *parts, self.callbacks, stop)
            if self.run.last_checkpoint.exists():
                loop.resume()
            try:
                return loop.train()
            except StoppedError as stopped:
                position = loop.position
                place = f"stopped in epoch {position.epoch + 1}, after batch {position.batch}"
                words = f"{place}; go on with parsecaps train --resume {self.run.folder}"
                raise stopped.reason(*([words] if self.processes.is_main else [])) from None

    def _write_result(self, position: Position) -> None:
        """Write the history, the result, and the best weights as a bundle."""
        run, data, model = self.run, self.run.data, self.step.model.cpu()
        load_weights(model, run.best_checkpoint(position.best + 1))
        for term in self.step.objective.terms.values():
            term.after_training(model, self.batches)
        forget_all_but(run, position.best + 1)
        write_history(run, position.history)
        row = position.history[position.best]
        result = {
            "finished": time.strftime("%Y-%m-%d %H:%M:%S"),
            "epochs": len(position.history),
            "best_epoch": position.best + 1,
            "validation": {name.removeprefix("val_"): row[name] for name in row if name.startswith("val_")},
            "seconds": round(sum(each["seconds"] for each in position.history), 1),
        }
        run.write_json(run.about_file, run.about | result)
        _save_bundle(run, Model(model.eval(), run.preparation, data.classes, concept_names(data, model)))
        close_to_others(run.bundle_folder)


def _save_bundle(run: Run, model: Model) -> None:
    """Write the model into a folder of another name, which takes its own when it is whole."""
    unfinished = run.folder / f".bundle.{os.getpid()}.tmp"
    unfinished.mkdir()
    model.save(unfinished)
    if run.fingerprints_file.is_file():
        shutil.copyfile(run.fingerprints_file, unfinished / run.fingerprints_file.name)
    os.replace(unfinished, run.bundle_folder)
