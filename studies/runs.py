"""The one way in which studies train: a run in a folder; a run that is there is finished or read."""

from pathlib import Path

from parsecaps.config import Config
from parsecaps.run import Run
from parsecaps.training import Callbacks
from parsecaps.training.fit import fit

QUIET = Callbacks()


def train_or_resume(config: Config, folder: Path, callbacks: Callbacks = QUIET) -> Run:
    """A run with its scores, trained now or before; one with other settings in the folder is refused."""
    run = fit(config, run_folder=folder, resume=True, callbacks=callbacks)
    if run.scores is None:
        raise ValueError(f"{folder} has no scores: {run.failure or 'it has neither a test nor a validation part'}")
    return run
