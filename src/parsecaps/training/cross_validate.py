"""Cross-validation: a run for each fold, and their pooled scores."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parsecaps.config import Config, EvaluateConfig, load_settings
from parsecaps.data.sources import open_data
from parsecaps.data.splits import fold_divisions
from parsecaps.files.writing import plain_name, refuse_links
from parsecaps.run import Run
from parsecaps.system.processes import find_processes
from parsecaps.system.signals import sigterm_raises
from parsecaps.system.threads import using_threads
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import fit, locked, new_run, settled
from parsecaps.training.plan import refuse_others, with_absolute_paths

FOLDS = 5
_MAY_DIFFER = ("training.batch_size", "training.devices")  # the first is lowered where there are fewer images


def cross_validate(
    config: Config | str | Path | None = None,
    *,
    folds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    start: str | Path | None = None,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Callbacks | None = None,
    device: str = "auto",
) -> Run:
    """Train and score a run for each fold, `fold-1` and so on below `run_folder`; then score all of them together.

    Five folds by default: the author's own if there are as many, else dealt by patient. All start from the weights of
    `start`, if given. A fold that is there already, trained with `data.fold`, is kept. Each fold resolves `auto` and
    chooses its epoch without the patients it tests. `resume` goes on with the first unfinished fold, to the same bits
    on a CPU. Scores are pooled: each case is scored by the model that did not see its patient.
    """
    callbacks = callbacks or Callbacks(log=print)
    if resume is not None:
        if config is not None or settings or start is not None or run_folder is not None or folds is not None:
            raise ValueError("a cross-validation is resumed as it was started; give resume alone")
        refuse_links(resume)
        run = Run(resume)
        if not run.folds:
            raise ValueError(f"{run.folder} is no cross-validation; resume it with fit")
        with sigterm_raises(), locked(run):
            return _train_folds(run, callbacks, device)
    chosen = settled(config, settings, start)
    wanted = FOLDS if folds is None else folds
    if folds is not None or not chosen.data.folds:
        chosen = chosen.change("data", folds=wanted)
    chosen = with_absolute_paths(chosen.change("data", fold=None))
    with sigterm_raises(), _begun(chosen, run_folder, callbacks) as run:
        return _train_folds(run, callbacks, device)


def _train_folds(run: Run, callbacks: Callbacks, device: str) -> Run:
    from parsecaps.evaluation import evaluate_run, write_results

    number = len(run.folds)
    finished = all(map(_is_finished, run.folds)) and run.scores_file.is_file()
    for i in range(number):
        _train_fold(run, i + 1, callbacks, device)
    if finished:
        callbacks.log(f"all {number} folds of {run.folder} have their scores; nothing is left to do")
        return run
    callbacks.log(f"scoring {number} folds together")
    try:
        with using_threads(run.fold(1).threads):
            settings = load_settings(EvaluateConfig, values={"device": device})
            found = evaluate_run(run.folder, settings, reading=callbacks.reading, scoring=callbacks.scoring)
            write_results(run, found)
    except KeyboardInterrupt as stopped:
        words = f"stopped while scoring {number} folds; go on with parsecaps train --resume {run.folder}"
        raise type(stopped)(words) from None
    return run


@contextmanager
def _begun(config: Config, run_folder: str | Path | None, callbacks: Callbacks) -> Iterator[Run]:
    processes = find_processes(config.training.devices)
    if processes.count > 1:
        raise ValueError(
            "folds are trained one after another in one process; leave out --devices, or train each fold on its own "
            "with --set data.fold=1"
        )
    with new_run(run_folder, plain_name(config.data.path) or "run", processes) as run:
        try:
            _, whose = fold_divisions(config.data, open_data(config.data.path, config.data.source))
        except KeyboardInterrupt as stopped:
            raise type(stopped)("stopped before the training began; nothing is kept") from None
        callbacks.log(f"folds: {config.data.folds} ({whose})")
        before = [number for number in range(1, config.data.folds + 1) if run.fold(number).is_there]
        for number in before:
            refuse_others(run.fold(number), config.change("data", fold=number), _MAY_DIFFER)
        run.write_text(run.config_file, config.to_yaml())
        try:
            yield run
        except Exception:
            if sum(fold.is_there for fold in run.folds) == len(before):  # nothing was trained: leave no folder
                run.config_file.unlink()
            raise


def _train_fold(run: Run, number: int, callbacks: Callbacks, device: str) -> None:
    fold, of = run.fold(number), run.config.data.folds
    if _is_finished(fold):
        return
    callbacks.log(f"fold {number} of {of}")
    try:
        if fold.is_there:
            fit(resume=fold.folder, callbacks=callbacks, device=device)
        else:
            config, first = run.config.change("data", fold=number), run.fold(1)
            threads = first.threads if first.is_there else None  # the same for all, so that a stop changes nothing
            fit(config, run_folder=fold.folder, callbacks=callbacks, threads=threads, device=device)
    except KeyboardInterrupt as stopped:
        words = f"stopped in fold {number} of {of}; go on with parsecaps train --resume {run.folder}"
        raise type(stopped)(words) from None


def _is_finished(fold: Run) -> bool:
    return fold.is_trained and fold.scores_file.is_file()
