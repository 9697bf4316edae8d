"""The optimizers of a table: every model learns by two, and the validation part chooses between the runs."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parsecaps.config import load_config, shipped_configs
from parsecaps.data.case_set import CaseSet
from parsecaps.metrics import score
from parsecaps.paper.plan import Column, Measured
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run

BOTH = ("muon", "usual")
PREDICTIONS = "predictions.npz"
_ADAMW = {"optimizer": "adamw", "learning_rate": 1e-3}
_OF_A_RECIPE = (  # what a published recipe says of the optimizer; the rest is equal for all models
    *("optimizer", "learning_rate", "weight_decay", "warm_up_epochs", "schedule", "decay", "decay_epochs"),
    *("max_grad_norm", "lowest_rate"),
)


def optimizers(column: Column, *, epochs: int, batch: int, published: bool) -> dict[str, dict[str, Any]]:
    """Optimizer settings by name: `muon` as the package chooses, `usual` as most would, by AdamW.

    With `published`, the model's published recipe is its usual one where the package ships it. Such recipes are made
    for hundreds of epochs, and often for ImageNet weights: in a few epochs from nothing a model would hardly learn.

    >>> optimizers(Column("CBM", "CBM"), epochs=10, batch=16, published=False)
    {'muon': {}, 'usual': {'optimizer': 'adamw', 'learning_rate': 0.001}}
    """
    recipe = _published(column, epochs, batch) if published else {}
    return {"muon": {}, "usual": recipe or dict(_ADAMW)}


def _published(column: Column, epochs: int, batch: int) -> dict[str, Any]:
    """The optimizer and schedule of a shipped configuration, empty without one.

    The learning rate is scaled from its batch size to ours: by the square root of the ratio, for SGD by the ratio. The
    schedule's steps are as many as in the recipe's own number of epochs.
    """
    named = {name.replace("-", ""): name for name in shipped_configs()}
    name = column.recipe or named.get(column.kind.lower(), "")
    if not name:
        return {}
    section = load_config(name).training
    found = {key: getattr(section, key) for key in _OF_A_RECIPE if key in section.model_fields_set}
    if "learning_rate" in found and section.batch_size != "auto":
        ratio = batch / section.batch_size
        found["learning_rate"] *= ratio if section.optimizer == "sgd" else ratio**0.5
    if "decay_epochs" in found and section.epochs != "auto":
        found["decay_epochs"] *= epochs / section.epochs
    return found


def validate(rows: Sequence[int], run: Run) -> Measured:
    """The log loss of a run on the validation rows, at its own temperature; 0 without any."""
    cases = CaseSet(run.data, run.prepared, rows)
    if not len(cases):
        return {"nll": 0.0}
    predictions = predict_cases(run.model, cases)
    scores = score(predictions, temperature=run.model.calibration.temperature, resamples=0)
    return {"nll": scores["nll"].value}


def measure_best(
    measure: Callable[[Run], Measured], rows: Sequence[int], trials: Mapping[str, Path], run: Run
) -> Measured:
    """Measure the trial with the lowest log loss on the validation rows, as if it were the given run."""
    found = {name: validate(rows, Run(folder))["nll"] for name, folder in trials.items()}
    best = min(found, key=lambda name: found[name])
    measured = dict(measure(Run(trials[best])))
    if (answers := trials[best] / PREDICTIONS).is_file():
        shutil.copyfile(answers, run.folder / PREDICTIONS)
    losses = ", ".join(f"{name} {loss:.3f}" for name, loss in found.items())
    trained = measured.get("trained", {})
    return {**measured, "trained": {**trained, "validation log loss": losses}}
