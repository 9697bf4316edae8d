"""Train a model, and score it on the patients it never saw: one folder with the model and honest numbers."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from parsecaps.config import Config, load_settings
from parsecaps.evaluation.runs import evaluate_run
from parsecaps.evaluation.scores import Scores
from parsecaps.pipeline.results import read_scores, write_card, write_results
from parsecaps.training import fit as training
from parsecaps.training.opening import Listeners
from parsecaps.training.run_folder import RunFolder

_NOBODY = "there is neither a test nor a validation part"


@dataclass(frozen=True, repr=False)
class TrainedRun(training.Run):
    """A finished run with its scores: on the test part, or on validation where there is no test part.

    `scores` are None in the other processes where several trained together, where there is neither part, and where
    scoring failed; `failure` then says why. The model is there all the same.
    """

    scores: Scores | None = None
    failure: str = ""

    def __repr__(self) -> str:
        lines = [f"run {self.folder.path}: epoch {self.best_epoch} of {len(self.history)} chosen"]
        lines += [f"not scored: {self.failure or _NOBODY}"] if self.scores is None else [repr(self.scores)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if self.scores is None:
            return f"<pre>{escape(repr(self))}</pre>"
        head = f"run {self.folder.path}: epoch {self.best_epoch} of {len(self.history)} chosen"
        return f"<p>{escape(head)}</p>{self.scores._repr_html_()}"


def fit(
    config: Config | str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    listeners: Listeners | None = None,
) -> TrainedRun:
    """Train on a data set, or as a configuration says, and score the chosen model; or `resume` a run.

    `settings` change the configuration, as in `{"training.epochs": 3}`. `run_folder` is made, the next free name below
    `runs` if left out; it then holds the model in `bundle`, `scores.json` and `scores.html`. What happens is printed;
    `listeners=Listeners()` keeps it quiet. A run that was stopped goes on as if it had not been; one that lacks only
    its scores gets them.
    """
    told = listeners or Listeners(log=print)
    if resume is not None:
        if config is not None or settings or run_folder is not None:
            raise ValueError("a run is resumed as it was started; give resume alone")
        before = RunFolder(Path(resume))
        finished = before.bundle.is_dir() and before.scores.is_file()
        run = training.fit(resume=resume, listeners=told)
    else:
        finished = False
        run = training.fit(settled(config, settings), run_folder=run_folder, listeners=told)
    if not run.is_main:
        return TrainedRun(**vars(run))
    if finished:
        told.log("it has its scores; nothing is left to do")
        return TrainedRun(**vars(run), scores=read_scores(run.folder))
    scores, failure = _score(run.folder, told)
    return TrainedRun(**vars(run), scores=scores, failure=failure)


def settled(config: Config | str | Path | None, settings: Mapping[str, Any] | None) -> Config:
    """A configuration or the path of a data set, with some settings changed."""
    if config is None:
        raise ValueError("there is nothing to train on; give a data set, a Config, or a run to resume")
    base = config if isinstance(config, Config) else Config().change("data", path=str(config))
    return load_settings(Config, values=settings, base=base)


def _score(folder: RunFolder, told: Listeners) -> tuple[Scores | None, str]:
    """Score the chosen model; whatever goes wrong here, the model stays."""
    again = f"the model is in {folder.bundle}; score it with parsecaps train --resume {folder.path}"
    try:
        counts = folder.read_parts()
        if not counts["test"] and not counts["val"]:
            write_card(folder, None)
            told.log(f"not scored: {_NOBODY}")
            return None, ""
        told.log(f"scoring the {'test' if counts['test'] else 'validation'} part")
        evaluation = evaluate_run(folder.path, reading=told.reading)
        write_results(folder, evaluation)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped while scoring; {again}") from None
    except Exception as error:  # of any kind: days of training may lie behind it
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}; {again}"
        told.log(f"scoring failed: {reason}")
        return None, reason
    return evaluation.scores, ""
