"""Training one network on several data sets, for other trainings to start from; and the card of such weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.config import Config, load_settings
from parsecaps.data.cases import DataSet
from parsecaps.data.sources import SOURCES
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.scores import Scores, score
from parsecaps.model import Model
from parsecaps.prediction.predict import predict_cases
from parsecaps.report.cards import weights_card
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import fit

# Nobody is tested: the official test parts stay unseen, and a few patients validate.
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

    Batches are drawn from all sets. An image is judged among the classes of its own set. Images without any label teach
    by the agreement of two views of each. The run's `bundle` can be the `model.start` of another training; its card
    names every source with its licence (`licences`, in the order of the data) and size. `fit` resumes such a run.
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
    """The settings of such a training: those of `base` or `DEFAULTS`, changed by `settings`."""
    if not data:
        raise ValueError("there is nothing to learn from; give data sets, as in parsecaps pretrain phantom --out trunk")
    base = load_settings(Config, values=DEFAULTS) if base is None else base
    first, *others = map(str, data)
    values: dict[str, Any] = {"data.path": first, "data.also": others}
    values |= {"data.licences": list(licences)} if licences else {}
    return load_settings(Config, values={**values, **(settings or {})}, base=base)


def write_weights_card(run: Run) -> None:
    """Score the heads, and write the card beside the model."""
    model, data = run.model, run.data
    validation, learned = run.cases("val"), set(run.cases("train").rows)
    predictions = predict_cases(model, validation) if len(validation) else None
    licences = run.config.data.licences or [SOURCES[member.source].licence for _, member in data.members]
    listed, first = [], 0
    for number, ((name, member), licence) in enumerate(zip(data.members, licences, strict=True)):
        own = range(first, first + len(member))
        here = [i for i, row in enumerate(validation.rows) if row in own]
        scores = None if predictions is None else _scores_of(model, data, predictions, here, number)
        patients = len({data.cases[row].patient for row in own if row in learned})
        counts = {"images": sum(row in learned for row in own), "patients": patients}
        listed.append({"name": name, "licence": licence, "member": member, "scores": scores, **counts})
        first += len(member)
    run.write_text(run.card_file, weights_card(model, run.config, run.about, listed))


def _scores_of(
    model: Model, data: DataSet, predictions: Predictions, here: Sequence[int], number: int
) -> Scores | None:
    """How good the head of one set is on its own cases; None where it has no labelled ones."""
    name = data.members[number][0]
    classes = [i for i, each in enumerate(data.class_sets) if each == number]
    concepts = [i for i, each in enumerate(model.concepts) if each.startswith(f"{name}/")]
    own = predictions.subset(here)
    if not classes or not (own.label >= 0).any():
        return None
    subset = replace(
        own,
        logits=own.logits[:, classes],
        label=np.where(own.label >= 0, own.label - classes[0], -1),
        classes=tuple(data.classes[i] for i in classes),
        presence=None if own.presence is None else own.presence[:, concepts],
        concepts=None if own.concepts is None else own.concepts[:, concepts],
        concept_names=tuple(model.concepts[i] for i in concepts),
    )
    return score(subset, resamples=0)
