"""Learn a trunk from several data sets at once, for other trainings to start from."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parsecaps.config import Config, load_settings
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.train import fit

# Nobody is tested: what the sources call test is left for others, and a few patients show how learning goes.
DEFAULTS: dict[str, Any] = {"data.val": 0.05, "data.test": 0.0, "training.keep": "last"}


def pretrain(
    data: Sequence[str | Path],
    *,
    settings: Mapping[str, Any] | None = None,
    licences: Sequence[str] = (),
    run_folder: str | Path | None = None,
    callbacks: Callbacks | None = None,
    device: str = "auto",
) -> Run:
    """Train one network on all these data sets, each with classes and concepts of its own.

    Batches are drawn from all sets. An image is judged among the classes of its own set, and what its set says nothing
    about costs nothing. Images without any label are learned from by the agreement of two views of each. The run's
    `bundle` is a model like any other, to be named as `model.start` of another training; its card names every source
    with its licence (`licences`, in the order of the data), its size, and what was learned. `fit` resumes such a run.
    """
    config = pretraining_config(data, settings, licences)
    return fit(config, run_folder=run_folder, callbacks=callbacks, device=device)


def pretraining_config(
    data: Sequence[str | Path],
    settings: Mapping[str, Any] | None = None,
    licences: Sequence[str] = (),
    *,
    base: Config | None = None,
) -> Config:
    """The settings of such a training: those of `base` or ours, changed by `settings`."""
    if not data:
        raise ValueError("there is nothing to learn from; give data sets, as in parsecaps pretrain phantom --out trunk")
    base = load_settings(Config, values=DEFAULTS) if base is None else base
    first, *others = map(str, data)
    values: dict[str, Any] = {"data.path": first, "data.also": others}
    values |= {"data.licences": list(licences)} if licences else {}
    return load_settings(Config, values={**values, **(settings or {})}, base=base)
