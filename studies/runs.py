"""The one way in which studies train: a run in a folder, by `fit`; a run that is there is finished or read."""

from pathlib import Path

from parsecaps.config import Config
from parsecaps.pipeline.train import fit
from parsecaps.run import Run
from parsecaps.training import Callbacks
from parsecaps.training.choose import absolute

QUIET = Callbacks()
_MAY_DIFFER = ("training.batch_size",)  # lowered where there are fewer images


def train_or_resume(config: Config, folder: Path, callbacks: Callbacks = QUIET) -> Run:
    """A run with its scores, trained now or before; one with other settings in the folder is refused."""
    run = Run(folder)
    if run.is_there:
        wanted = config.change("data", path=absolute(config.data.path))
        if config.model.start is not None:
            wanted = wanted.change("model", start=absolute(config.model.start))
        run.refuse_others(wanted, _MAY_DIFFER)
        run = fit(resume=folder, callbacks=callbacks)
    else:
        run = fit(config, run_folder=folder, callbacks=callbacks)
    if run.scores is None:
        raise ValueError(f"{folder} has no scores: {run.failure or 'it has neither a test nor a validation part'}")
    return run
