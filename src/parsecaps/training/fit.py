"""From a configuration to a trained and scored run; and resuming one."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from parsecaps.config import Config, EvaluateConfig, load_settings
from parsecaps.files.writing import close_to_others, plain_name, refuse_links
from parsecaps.model import Model, concept_names, find_device
from parsecaps.models.pretrained import within_weights
from parsecaps.run import Run, preparation_of
from parsecaps.system.processes import Processes, find_processes
from parsecaps.system.signals import StopRequest, signals_ask, sigterm_raises
from parsecaps.system.threads import Threads, choose_threads, using_threads
from parsecaps.training.build import build_batches, build_model, build_step
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.checkpoint import Position, load_weights, read_checkpoint, read_position
from parsecaps.training.choose import Choice
from parsecaps.training.folder import locked, new_run
from parsecaps.training.loop import StoppedError, TrainingLoop, forget_all_but, write_history
from parsecaps.training.plan import Plan, refuse_others
from parsecaps.training.processes import join_processes
from parsecaps.training.starting_weights import describe_origin, take_weights

MAY_DIFFER = ("training.batch_size",)  # lowered where there are fewer images


def fit(
    config: Config | str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    start: str | Path | None = None,
    run_folder: str | Path | None = None,
    resume: str | Path | bool | None = None,
    callbacks: Callbacks | None = None,
    device: str = "auto",
    threads: int | None = None,
    score: bool = True,
) -> Run:
    """Train on a data set, or as a configuration says, and score the chosen model; or `resume` a run.

    `settings` change the configuration, as in `{"training.epochs": 3}`. `start` is a run, a model folder or the name of
    weights, from which the network takes all that fits (`model.start`). `run_folder`, by default the next free name
    below `runs`, then holds the model in `bundle`, `scores.json` and `scores.html`. Progress is printed;
    `callbacks=Callbacks()` keeps it quiet. `device` is auto (a GPU if there is one), cpu or cuda. `threads` defaults to
    those that are free; a resumed run keeps its own.

    A resumed run ends as if it had never been stopped, to the same bits on a CPU; one that lacks only its scores gets
    them. With `resume=True`, the run in `run_folder` is resumed, if there is one with these settings. Ctrl-C saves and
    raises `KeyboardInterrupt`, SIGTERM saves and raises `TerminatedError`; a loss that is not finite raises
    `DivergedError`. If scoring fails, the model is kept, and the run's `failure` says why. With several processes only
    the first one writes and reports.
    """
    callbacks, place = callbacks or Callbacks(log=print), find_device(device)
    chosen: Config | None
    old: Run | None = None  # the one that goes on
    if resume is None or isinstance(resume, bool):
        chosen = settled(config, settings, start)
        if resume and run_folder is not None and Run(run_folder).is_there:
            old = Run(run_folder)
            refuse_others(old, chosen, MAY_DIFFER)
    elif config is not None or settings or start is not None or run_folder is not None:
        raise ValueError("a run is resumed as it was started; give resume alone")
    else:
        chosen, old = None, Run(resume)
    if old is not None:
        refuse_links(old.folder)
    was_trained = old is not None and old.is_trained
    with sigterm_raises():
        if old is not None and was_trained:
            run = Run(old.folder, is_main=find_processes(old.config.training.devices).is_main)
            callbacks.log(f"{run.folder} is trained to the end")
        else:
            if old is not None:
                opened = _resumed(old, callbacks, place)
            else:
                assert chosen is not None
                opened = _started(chosen, run_folder, callbacks, place, threads)
            with torch.random.fork_rng(devices=[]), opened as training:
                training.finish()
            run = training.run
        if not (score and run.is_main):
            return run
        if was_trained and run.scores_file.is_file():
            callbacks.log("it has its scores; nothing is left to do")
            return run
        run.remove_unfinished()
        with using_threads(run.threads):
            return Run(run.folder, failure=_score(run, callbacks, device))


def settled(
    config: Config | str | Path | None, settings: Mapping[str, Any] | None, start: str | Path | None = None
) -> Config:
    """A configuration or the path of a data set, with some settings changed, and the weights to start from."""
    if config is None:
        raise ValueError("there is nothing to train on; give a data set, a Config, or a run to resume")
    base = config if isinstance(config, Config) else Config().change("data", path=str(config))
    chosen = load_settings(Config, values=settings, base=base)
    return chosen if start is None else chosen.change("model", start=str(start))


@contextmanager
def _started(
    config: Config, run_folder: str | Path | None, callbacks: Callbacks, device: torch.device, threads: int | None
) -> Iterator["_Training"]:
    processes = find_processes(config.training.devices)
    callbacks = callbacks if processes.is_main else Callbacks()
    name = plain_name(config.data.path) or "run"
    with new_run(run_folder, name, processes) as run, _stopping(run, processes) as stop:
        if not processes.by_torchrun and not processes.is_main:  # the first one has chosen
            threads = run.threads
        used = choose_threads(processes.here) if threads is None else Threads(threads, "as in the first fold")
        choice = Choice("threads", str(used.number), used.why)
        with using_threads(used.number):
            plan = Plan.make(config, processes, callbacks, device)
            callbacks.log(str(choice))
            # wrong settings show here, before there is a run
            training = _Training(plan, run, processes, callbacks, stop, device)
            if processes.is_main:
                plan.start(run, training.origin, processes, device, choice)
            yield training


@contextmanager
def _resumed(run: Run, callbacks: Callbacks, device: torch.device) -> Iterator["_Training"]:
    processes = find_processes(run.config.training.devices)
    callbacks = callbacks if processes.is_main else Callbacks()
    if run.threads != torch.get_num_threads():
        callbacks.log(f"threads: {run.threads} (as the run was started with, for the same result)")
    lock, last = locked(run) if processes.is_main else nullcontext(), run.last_checkpoint
    with lock, _stopping(run, processes) as stop, using_threads(run.threads):
        if processes.is_main:
            run.remove_unfinished()
        plan = Plan.of_run(run, callbacks)
        run = Run(run.folder, is_main=processes.is_main)
        try:
            with within_weights(last.stat().st_size // 4) if last.is_file() else nullcontext():
                training = _Training(plan, run, processes, callbacks, stop, device)
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            unfit = f"{run.config_file} does not fit the run ({reason}); restore it as the run wrote it"
            raise ValueError(unfit) from None
        yield training


@contextmanager
def _stopping(run: Run, processes: Processes) -> Iterator[StopRequest]:
    """On interrupt outside the loop, report where the run is; other processes join the first, which waits for them."""
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


class _Training:
    def __init__(
        self, plan: Plan, run: Run, processes: Processes, callbacks: Callbacks, stop: StopRequest, device: torch.device
    ) -> None:
        self.plan, self.run, self.processes, self.callbacks, self.stop = plan, run, processes, callbacks, stop
        self.device = device
        torch.manual_seed(plan.config.training.seed)
        model = build_model(plan)
        self.origin = run.origin if run.is_there else None
        if plan.weights is not None:
            self.origin = take_weights(model, plan.weights, plan.data.classes, concept_names(plan.data, model))
            for line in describe_origin(self.origin):
                callbacks.log(line)
        self.step = build_step(plan, model)
        batches = build_batches(plan, "train", processes, self.step.objective.needs)
        assert batches is not None
        self.batches, self.validation = batches, build_batches(plan, "val", processes, self.step.objective.needs)
        if self.origin is not None:
            self.step.taken = frozenset(f"model.{name}" for name in self.origin.layers)

    def finish(self) -> None:
        """Train what is left, and write the result."""
        run, last = self.run, self.run.last_checkpoint
        position = read_position(read_checkpoint(last), last) if last.exists() else Position()
        if last.exists() and not position.done:
            self.callbacks.log(f"going on with epoch {position.epoch + 1}, batch {position.batch + 1}")
        if not position.done:
            draws = self.step.objective.needs & {"picture", "decoder"}
            idle = self.step.model.decoder is not None and not draws  # it gets no gradient
            joined = join_processes(
                run,
                self.processes,
                self.device,
                precision=self.plan.config.training.precision,
                first_step=position.step,
                idle_parameters=idle,
            )
            with signals_ask(self.stop), joined as fabric:
                parts = self.step, self.batches, self.validation
                loop = TrainingLoop(fabric, run, self.plan, *parts, self.callbacks, self.stop)
                if last.exists():
                    loop.resume()
                try:
                    position = loop.train()
                except StoppedError as stopped:
                    position = loop.position
                    place = f"stopped in epoch {position.epoch + 1}, after batch {position.batch}"
                    words = f"{place}; go on with parsecaps train --resume {run.folder}"
                    raise stopped.reason(*([words] if self.processes.is_main else [])) from None
        if self.processes.is_main:
            self._write_result(position)

    def _write_result(self, position: Position) -> None:
        run, data, model = self.run, self.plan.data, self.step.model.cpu()
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
        preparation = preparation_of(self.plan.config)
        _save_bundle(run, Model(model.eval(), preparation, data.classes, concept_names(data, model)))
        close_to_others(run.bundle_folder)


def _save_bundle(run: Run, model: Model) -> None:
    """Write the model under a temporary name, then rename."""
    unfinished = run.folder / f".bundle.{os.getpid()}.tmp"
    unfinished.mkdir()
    model.save(unfinished)
    if run.fingerprints_file.is_file():
        shutil.copyfile(run.fingerprints_file, unfinished / run.fingerprints_file.name)
    os.replace(unfinished, run.bundle_folder)


def _score(run: Run, callbacks: Callbacks, device: str) -> str:
    """Draw the curves, calibrate and score the chosen model; return what went wrong, if anything."""
    from parsecaps.evaluation import calibrate_run, evaluate_run, write_card, write_results
    from parsecaps.report.pages import draw_curves
    from parsecaps.training.pretrain import write_weights_card

    again = f"the model is in {run.bundle_folder}; score it with parsecaps train --resume {run.folder}"
    try:
        draw_curves(run.curves_file, run.history, run.best_epoch - 1)
        if run.config.data.also:
            write_weights_card(Run(run.folder, reading=callbacks.reading))
            return ""
        counts = run.data_check["patients_by_part"]
        if not counts["test"] and not counts["val"]:
            write_card(run, None)
            callbacks.log("not scored: there is neither a test nor a validation part")
            return ""
        callbacks.log(f"scoring the {'test' if counts['test'] else 'validation'} part")
        calibrate_run(Run(run.folder, device=device, reading=callbacks.reading))
        settings = load_settings(EvaluateConfig, values={"device": device})
        found = evaluate_run(run.folder, settings, reading=callbacks.reading, scoring=callbacks.scoring)
        write_results(run, found)
    except KeyboardInterrupt as stopped:
        raise type(stopped)(f"stopped while scoring; {again}") from None
    except Exception as error:  # of any kind: days of training may lie behind it
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}; {again}"
        callbacks.log(f"scoring failed: {reason}")
        return reason
    return ""
