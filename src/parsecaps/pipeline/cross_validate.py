"""Cross-validation: a run for each fold, and one score that every patient has a share in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parsecaps.config import Config
from parsecaps.data.files import refuse_links, write_text
from parsecaps.data.sources import open_data
from parsecaps.data.splits import fold_divisions
from parsecaps.pipeline.evaluate import evaluate_run, write_results
from parsecaps.pipeline.train import fit, settled
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.choose import absolute
from parsecaps.training.processes import find_processes
from parsecaps.training.start import new_run

FOLDS = 5
_MAY_DIFFER = ("training.batch_size", "training.devices")  # the first is lowered where there are fewer images


def cross_validate(
    config: Config | str | Path | None = None,
    *,
    folds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Callbacks | None = None,
) -> Run:
    """Train and score a run for each fold, `fold-1` and so on below `run_folder`; then score all of them together.

    A fold that is there already, trained on its own with `data.fold`, is taken as it is.

    Five folds unless the configuration or `folds` says otherwise: those of the data's author where there are as many,
    else dealt by patient. Each fold chooses what is `auto` and its epoch without the patients it tests. After a kill,
    `resume` goes on with the first unfinished fold, to the same bits on a CPU. The scores of the run are those of all
    folds, pooled: each case by the model that did not see its patient.
    """
    callbacks = callbacks or Callbacks(log=print)
    if resume is not None:
        if config is not None or settings or run_folder is not None or folds is not None:
            raise ValueError("a cross-validation is resumed as it was started; give resume alone")
        refuse_links(resume)
        run = Run(resume)
        if not run.folds:
            raise ValueError(f"{run.folder} is no cross-validation; resume it with fit")
    else:
        chosen = settled(config, settings)
        wanted = FOLDS if folds is None else folds
        if folds is not None or not chosen.data.folds:
            chosen = chosen.change("data", folds=wanted)
        chosen = chosen.change("data", path=absolute(chosen.data.path), fold=None)
        run = _begin(chosen, run_folder, callbacks)
    number = len(run.folds)
    finished = all(map(_is_finished, run.folds)) and run.scores_file.is_file()
    for i in range(number):
        _train_fold(run, i + 1, callbacks)
    if finished:
        callbacks.log(f"all {number} folds of {run.folder} have their scores; nothing is left to do")
        return run
    callbacks.log(f"scoring {number} folds together")
    write_results(run, evaluate_run(run.folder, reading=callbacks.reading))
    return run


def _begin(config: Config, run_folder: str | Path | None, callbacks: Callbacks) -> Run:
    """The folder with the configuration in it, from which everything can be resumed."""
    processes = find_processes(config.training.devices)
    if processes.count > 1:
        raise ValueError(
            "folds are trained one after another in one process; leave out --devices, or train each fold on its own "
            "with --set data.fold=1"
        )
    _, whose = fold_divisions(config.data, open_data(config.data.path, config.data.source))
    callbacks.log(f"folds: {config.data.folds} ({whose})")
    run = new_run(run_folder, config, processes)
    for number in range(1, config.data.folds + 1):
        if run.fold(number).is_there:
            _check_same(run.fold(number), config.change("data", fold=number))
    run.folder.mkdir(parents=True, exist_ok=True)
    write_text(run.config_file, config.to_yaml())
    return run


def _train_fold(run: Run, number: int, callbacks: Callbacks) -> None:
    fold, of = run.fold(number), run.config.data.folds
    if _is_finished(fold):
        return
    callbacks.log(f"fold {number} of {of}")
    try:
        if fold.is_there:
            fit(resume=fold.folder, callbacks=callbacks)
        else:
            fit(run.config.change("data", fold=number), run_folder=fold.folder, callbacks=callbacks)
    except KeyboardInterrupt:
        words = f"stopped in fold {number} of {of}; go on with parsecaps train --resume {run.folder}"
        raise KeyboardInterrupt(words) from None
    except Exception:
        if number == 1 and not fold.is_there:  # nothing was trained yet: a wrong setting leaves no folder
            run.config_file.unlink()
            if not any(run.folder.iterdir()):
                run.folder.rmdir()
        raise


def _check_same(fold: Run, config: Config) -> None:
    """Refuse a fold that was trained on its own with other settings; what was `auto` may be anything."""
    found = fold.config.model_dump()
    for section, wanted in config.model_dump().items():
        for name, value in (wanted or dict.fromkeys(found[section] or {})).items():
            there = (found[section] or {}).get(name)
            if f"{section}.{name}" not in _MAY_DIFFER and value != "auto" and there != value:
                reason = f"{section}.{name}={there}, but {value} is wanted; choose another folder"
                raise ValueError(f"{fold.folder} was trained with {reason}")


def _is_finished(fold: Run) -> bool:
    return fold.is_trained and fold.scores_file.is_file()
