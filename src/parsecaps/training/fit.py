"""From a configuration to a trained and scored run in a folder of its own, and resuming one."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout

from parsecaps.config import Config, EvaluateConfig, load_settings
from parsecaps.files.writing import (
    close_to_others,
    make_first_free,
    make_private_folder,
    plain_name,
    refuse_links,
    remove_empty,
)
from parsecaps.model import Model, concept_names, find_device
from parsecaps.models.pretrained import within_weights
from parsecaps.run import Run, preparation_of
from parsecaps.system.processes import Processes, find_processes
from parsecaps.system.signals import StopRequest, signals_ask, sigterm_raises
from parsecaps.system.threads import Threads, choose_threads, using_threads
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.checkpoint import load_weights
from parsecaps.training.choose import Choice
from parsecaps.training.loop import TrainingLoop, forget_all_but, write_history
from parsecaps.training.plan import Plan, refuse_others

RUN_VARIABLE = "PARSECAPS_RUN"  # tells the processes that Fabric starts where the run is
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
                if training.processes.is_main:
                    _write_result(training)
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
) -> Iterator[TrainingLoop]:
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
            training = TrainingLoop(plan, run, processes, callbacks, stop, device)
            if processes.is_main:
                plan.start(run, training.origin, processes, device, choice)
            yield training


@contextmanager
def _resumed(run: Run, callbacks: Callbacks, device: torch.device) -> Iterator[TrainingLoop]:
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
                training = TrainingLoop(plan, run, processes, callbacks, stop, device)
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


def _write_result(training: TrainingLoop) -> None:
    position, run, data, model = training.position, training.run, training.data, training.step.model.cpu()
    load_weights(model, run.best_checkpoint(position.best + 1))
    for term in training.step.objective.terms.values():
        term.after_training(model, training.batches)
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
    preparation = preparation_of(training.plan.config)
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


@contextmanager
def new_run(wanted: str | Path | None, name: str, processes: Processes) -> Iterator[Run]:
    """A run in the folder asked for, or the next free one below `runs`; removed again, if made here, unless a run
    begins.
    """
    if not processes.is_main:
        yield Run(os.environ.get(RUN_VARIABLE) or wanted or ".", is_main=False)
        return
    if wanted is not None:
        _refuse_a_run(Run(wanted))
        made = make_private_folder(wanted)
        run = Run(wanted)
    else:
        made = make_first_free(Path("runs") / f"{name}-{i}" for i in count(1))
        run = Run(made[-1])
    try:
        before = set(os.listdir(run.folder))
        with locked(run):
            _refuse_a_run(run)  # of a process that was quicker
            try:
                yield run
            finally:
                if not run.is_there:
                    _remove_what_is_new(run, before)
    finally:
        if not run.is_there:
            remove_empty(made)


@contextmanager
def locked(run: Run) -> Iterator[None]:
    """Lock the folder against other processes, and tell those that Fabric starts about it."""
    lock = FileLock(run.folder / ".lock", mode=0o600)  # let go by the system, also when a process is killed
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ValueError(f"{run.folder} is being trained by another process; wait for it or stop it") from None
    outer = os.environ.get(RUN_VARIABLE)
    os.environ[RUN_VARIABLE] = str(run.folder.resolve())
    try:
        yield
    finally:
        del os.environ[RUN_VARIABLE]
        if outer is not None:  # a fold within its cross-validation
            os.environ[RUN_VARIABLE] = outer
        lock.release()


def _refuse_a_run(run: Run) -> None:
    folder = run.folder
    refuse_links(folder)
    if run.is_there or (run.checkpoint_folder.is_dir() and any(run.checkpoint_folder.iterdir())):
        raise ValueError(
            f"{folder} holds a run already; choose another folder, or go on with parsecaps train --resume {folder}"
        )
    for path in (run.bundle_folder, run.split_file, run.data_file, run.about_file, run.history_file, run.scores_file):
        if path.exists():
            raise ValueError(f"{path} is there already, and not of this run; choose another folder")


def _remove_what_is_new(run: Run, before: set[str]) -> None:
    for path in (run.split_file, run.data_file, run.about_file, run.fingerprints_file, run.folder / ".lock"):
        if path.name not in before:
            with suppress(OSError):
                path.unlink()
    if run.checkpoint_folder.name not in before:
        remove_empty([run.checkpoint_folder])
