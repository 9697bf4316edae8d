"""Train a model, and score it on the patients it never saw: one folder with the model and honest numbers."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from parsecaps.config import Config, EvaluateConfig, load_settings
from parsecaps.data.sources import absolute
from parsecaps.evaluation import calibrate_run, evaluate_run, write_card, write_results
from parsecaps.report.pages import draw_curves
from parsecaps.run import Run
from parsecaps.system.signals import sigterm_raises
from parsecaps.system.threads import using_threads
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import train_run
from parsecaps.training.weights_card import write_weights_card

_MAY_DIFFER = ("training.batch_size",)  # lowered where there are fewer images


def fit(
    config: Config | str | Path | None = None,
    *,
    settings: Mapping[str, Any] | None = None,
    start: str | Path | None = None,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Callbacks | None = None,
    device: str = "auto",
) -> Run:
    """Train on a data set, or as a configuration says, and score the chosen model; or `resume` a run.

    `settings` change the configuration, as in `{"training.epochs": 3}`. `start` is a run, a model folder or the name
    of weights, from which the network takes all that fits (`model.start`). `run_folder` is made, the next free name
    below `runs` if left out; it then holds the model in `bundle`, `scores.json` and `scores.html`. What happens is
    printed; `callbacks=Callbacks()` keeps it quiet. A run that was stopped goes on as if it had not been; one that
    lacks only its scores gets them. Where scoring fails, the model is there all the same, and `failure` of the run says
    why. `device` is auto (a GPU where there is one), cpu or cuda; a run may be resumed on another one.
    """
    callbacks = callbacks or Callbacks(log=print)
    if resume is not None and (config is not None or settings or start is not None or run_folder is not None):
        raise ValueError("a run is resumed as it was started; give resume alone")
    chosen = settled(config, settings, start) if resume is None else None
    return fit_run(chosen, run_folder=run_folder, resume=resume, callbacks=callbacks, device=device)


def fit_or_resume(config: Config, folder: str | Path, callbacks: Callbacks | None = None) -> Run:
    """A run in a folder, trained now or before, or gone on with; one with other settings in the folder is refused."""
    callbacks = callbacks or Callbacks()
    run = Run(folder)
    if not run.is_there:
        return fit(config, run_folder=folder, callbacks=callbacks)
    refuse_other_settings(run, config)
    return fit(resume=folder, callbacks=callbacks)


def refuse_other_settings(run: Run, config: Config) -> None:
    """Refuse a run that was trained with other settings than these."""
    wanted = config.change("data", path=absolute(config.data.path))
    if config.model.start is not None:
        wanted = wanted.change("model", start=absolute(config.model.start))
    run.refuse_others(wanted, _MAY_DIFFER)


def fit_run(
    config: Config | None,
    *,
    run_folder: str | Path | None = None,
    resume: str | Path | None = None,
    callbacks: Callbacks,
    threads: int | None = None,
    device: str = "auto",
) -> Run:
    """`fit` of settings that are settled, with so many threads; None chooses."""
    finished = resume is not None and Run(resume).is_trained and Run(resume).scores_file.is_file()
    with sigterm_raises():
        run = train_run(
            config, run_folder=run_folder, resume=resume, callbacks=callbacks, threads=threads, device=device
        )
        if finished:
            callbacks.log("it has its scores; nothing is left to do")
        elif run.is_main:
            run.remove_unfinished()
            with using_threads(run.threads):
                run.failure = _score(run, callbacks, device)
    return run


def settled(
    config: Config | str | Path | None, settings: Mapping[str, Any] | None, start: str | Path | None = None
) -> Config:
    """A configuration or the path of a data set, with some settings changed, and the weights to start from."""
    if config is None:
        raise ValueError("there is nothing to train on; give a data set, a Config, or a run to resume")
    base = config if isinstance(config, Config) else Config().change("data", path=str(config))
    chosen = load_settings(Config, values=settings, base=base)
    return chosen if start is None else chosen.change("model", start=str(start))


def _score(run: Run, callbacks: Callbacks, device: str) -> str:
    """Draw the curves, calibrate and score the chosen model, and say what went wrong; in any case the model stays."""
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
