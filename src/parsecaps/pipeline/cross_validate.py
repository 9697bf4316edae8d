"""Cross-validation: a run for each fold, and one score that every patient has a share in."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parsecaps.config import Config
from parsecaps.data.sources import open_data
from parsecaps.evaluation.runs import evaluate_run
from parsecaps.evaluation.scores import Scores
from parsecaps.pipeline.fit import TrainedRun, fit, settled
from parsecaps.pipeline.results import read_scores, write_results, write_text
from parsecaps.training.choose import absolute
from parsecaps.training.folds import fold_divisions
from parsecaps.training.opening import Listeners, new_folder
from parsecaps.training.processes import find_processes
from parsecaps.training.run_folder import RunFolder

FOLDS = 5
_MAY_DIFFER = ("training.batch_size", "training.devices")  # the first is lowered where there are fewer images


@dataclass(frozen=True, repr=False)
class CrossValidation:
    """The runs of all folds, and their scores pooled: each case by the model that did not see its patient."""

    folder: RunFolder
    config: Config
    runs: list[TrainedRun]
    scores: Scores

    def __repr__(self) -> str:
        return f"cross-validation {self.folder.path}, {len(self.runs)} folds\n{self.scores!r}"

    def _repr_html_(self) -> str:
        return self.scores._repr_html_()


def cross_validate(
    config: Config | str | Path | None = None,
    *,
    folds: int | None = None,
    settings: Mapping[str, Any] | None = None,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    listeners: Listeners | None = None,
) -> CrossValidation:
    """Train and score a run for each fold, `fold-1` and so on below `run_folder`; then score all of them together.

    A fold that is there already, trained on its own with `data.fold`, is taken as it is.

    Five folds unless the configuration or `folds` says otherwise: those of the data's author where there are as many,
    else dealt by patient. Each fold chooses what is `auto` and its epoch without the patients it tests. After a kill,
    `resume` goes on with the first unfinished fold, to the same bits on a CPU.
    """
    told = listeners or Listeners(log=print)
    if resume is not None:
        if config is not None or settings or run_folder is not None or folds is not None:
            raise ValueError("a cross-validation is resumed as it was started; give resume alone")
        folder = RunFolder(Path(resume))
        chosen = folder.read_config()
        if not chosen.data.folds or chosen.data.fold is not None:
            raise ValueError(f"{folder.path} is no cross-validation; resume it with fit")
    else:
        chosen = settled(config, settings)
        wanted = FOLDS if folds is None else folds
        if folds is not None or not chosen.data.folds:
            chosen = chosen.change("data", folds=wanted)
        chosen = chosen.change("data", path=absolute(chosen.data.path), fold=None)
        folder = _begin(chosen, run_folder, told)
    number = chosen.data.folds
    finished = all(_is_finished(folder.fold(i + 1)) for i in range(number)) and folder.scores.is_file()
    runs = [_train_fold(folder, chosen, i + 1, told) for i in range(number)]
    if finished:
        told.log(f"all {number} folds of {folder.path} have their scores; nothing is left to do")
        return CrossValidation(folder, chosen, runs, read_scores(folder))
    told.log(f"scoring {number} folds together")
    evaluation = evaluate_run(folder.path, reading=told.reading)
    write_results(folder, evaluation)
    return CrossValidation(folder, chosen, runs, evaluation.scores)


def _begin(config: Config, run_folder: str | Path | None, told: Listeners) -> RunFolder:
    """The folder with the configuration in it, from which everything can be resumed."""
    processes = find_processes(config.training.devices)
    if processes.count > 1:
        raise ValueError(
            "folds are trained one after another in one process; leave out --devices, or train each fold on its own "
            "with --set data.fold=1"
        )
    _, whose = fold_divisions(config.data, open_data(config.data.path, config.data.source))
    told.log(f"folds: {config.data.folds} ({whose})")
    folder = new_folder(run_folder, config, processes)
    for number in range(1, config.data.folds + 1):
        if folder.fold(number).config.is_file():
            _check_same(folder.fold(number), config.change("data", fold=number))
    folder.path.mkdir(parents=True, exist_ok=True)
    write_text(folder.config, config.to_yaml())
    return folder


def _train_fold(folder: RunFolder, config: Config, number: int, told: Listeners) -> TrainedRun:
    fold, of = folder.fold(number), config.data.folds
    if _is_finished(fold):
        return fit(resume=fold.path, listeners=Listeners())
    told.log(f"fold {number} of {of}")
    try:
        if fold.config.is_file():
            return fit(resume=fold.path, listeners=told)
        return fit(config.change("data", fold=number), run_folder=fold.path, listeners=told)
    except KeyboardInterrupt:
        words = f"stopped in fold {number} of {of}; go on with parsecaps train --resume {folder.path}"
        raise KeyboardInterrupt(words) from None
    except Exception:
        if number == 1 and not fold.config.is_file():  # nothing was trained yet: a wrong setting leaves no folder
            folder.config.unlink()
            if not any(folder.path.iterdir()):
                folder.path.rmdir()
        raise


def _check_same(fold: RunFolder, config: Config) -> None:
    """Refuse a fold that was trained on its own with other settings; what was `auto` may be anything."""
    found = fold.read_config().model_dump()
    for section, wanted in config.model_dump().items():
        for name, value in (wanted or dict.fromkeys(found[section] or {})).items():
            there = (found[section] or {}).get(name)
            if f"{section}.{name}" not in _MAY_DIFFER and value != "auto" and there != value:
                reason = f"{section}.{name}={there}, but {value} is wanted; choose another folder"
                raise ValueError(f"{fold.path} was trained with {reason}")


def _is_finished(fold: RunFolder) -> bool:
    return fold.bundle.is_dir() and fold.scores.is_file()
