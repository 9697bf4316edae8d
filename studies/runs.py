"""The one way in which studies train: a run in a folder, by `fit`; a run that is there is finished or read."""

from pathlib import Path

from parsecaps.config import Config
from parsecaps.pipeline.train import fit
from parsecaps.run import Run
from parsecaps.training import Callbacks
from parsecaps.training.choose import absolute

QUIET = Callbacks()
_LOWERED = "training.batch_size"  # where there are fewer images


def train_or_resume(config: Config, folder: Path, callbacks: Callbacks = QUIET) -> Run:
    """A run with its scores, trained now or before; one with other settings in the folder is refused."""
    run = Run(folder)
    if run.is_there:
        _check_same(run, config)
        run = fit(resume=folder, callbacks=callbacks)
    else:
        run = fit(config, run_folder=folder, callbacks=callbacks)
    if run.scores is None:
        raise ValueError(f"{folder} has no scores: {run.failure or 'it has neither a test nor a validation part'}")
    return run


def _check_same(run: Run, config: Config) -> None:
    """Refuse a run that was started with other settings; what is `auto` may have become anything."""
    found, wanted = run.config.model_dump(), config.change("data", path=absolute(config.data.path)).model_dump()
    for section, values in wanted.items():
        for name, value in (values or dict.fromkeys(found[section] or {})).items():
            there = (found[section] or {}).get(name)
            if f"{section}.{name}" != _LOWERED and value not in ("auto", there):
                reason = f"{section}.{name}={there}, but {value} is wanted; choose another folder"
                raise ValueError(f"{run.folder} was trained with {reason}")
