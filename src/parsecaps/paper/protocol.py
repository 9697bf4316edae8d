"""Equal terms: the trainings of a table differ in the model alone, and each model learns by two optimizers."""

import json
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from filelock import FileLock

from parsecaps.config import Config, load_config, shipped_configs
from parsecaps.data.case_set import CaseSet
from parsecaps.files.writing import make_private_folder, write_text
from parsecaps.metrics import score
from parsecaps.models import find_model
from parsecaps.models.summary import count_parameters
from parsecaps.paper.cells import Cell, Column, Load, Log, Measured, Request, Scale
from parsecaps.paper.listing import duration, fitting_epochs
from parsecaps.paper.needs import Need, TableCases, scaling_of
from parsecaps.paper.slowdown import seconds_per_epoch
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from parsecaps.training.build import build_network

PREDICTIONS = "predictions.npz"  # of a cell, for paired tests
BATCH = 16  # images of a step, for all models
BOTH = ("muon", "usual")
# off for all models: chosen for ParseCaps, and of no use to some losses of others
_PLAIN = {"mixup": 0.0, "losses": {"consistency": 0.0, "diversity": 0.0}}
_EQUAL = {"keep": "last", "class_balance": "none", "ema": 0.99, "patience": 0}
_ADAMW = {"optimizer": "adamw", "learning_rate": 1e-3}
Fits = Callable[[Column, Sized], bool]  # whether a column takes data with these concepts
_OF_A_RECIPE = (  # what a published recipe says of the optimizer; the rest is equal for all models
    *("optimizer", "learning_rate", "weight_decay", "warm_up_epochs", "schedule", "decay", "decay_epochs"),
    *("max_grad_norm", "lowest_rate"),
)


@dataclass(frozen=True)
class Protocol:
    """Equal terms of models, whose trainings tables share; of two `optimizers`, validation chooses the run."""

    name: str
    scales: Mapping[str, Scale]
    concepts: bool = False
    optimizers: Sequence[str] = ("muon",)
    batch: int = BATCH

    def scale(self, request: Request) -> Scale:
        """The scale of the budget."""
        return self.scales[request.budget]

    @property
    def most(self) -> int:
        """Epochs in full."""
        return self.scales["full"].epochs or 1

    def folder(self, request: Request) -> Path:
        """Where its split and its cells are."""
        return request.out / "cells" / f"{self.name}-{request.budget}"

    def cells(
        self,
        request: Request,
        columns: Sequence[Column],
        sets: Sequence[TableCases],
        log: Log,
        *,
        measure: Callable[[TableCases, Run], Measured],
        change: Callable[[Config, TableCases], Config],
        fits: Fits,
    ) -> dict[tuple[str, str], Cell]:
        """A cell for each column that fits a set, by the names of both; refused if a model cannot be built."""
        pairs = [(cases, each) for cases in sets for each in columns if each.kind and fits(each, cases.data.concepts)]
        for cases, column in pairs:  # before epochs are timed: what cannot be built cannot be timed
            config = change(self._configure(column, cases, {}, 1, request), cases)
            try:
                build_network(config, len(cases.data.classes))
            except (ValueError, RuntimeError) as error:
                reason = " ".join(str(error).split())
                raise ValueError(f"{column.name} cannot be built for {cases.name}: {reason}") from None
        epochs = self._epochs(request, columns, sets, fits, log)
        found = {}
        for cases, column in pairs:
            own = re.sub(r"\W+", "-", column.name).strip("-")
            name = f"{self.folder(request).name}/{own if len(sets) == 1 else f'{cases.name}-{own}'}"
            known = optimizers(column, epochs=epochs, batch=self.batch, published=request.budget == "full")
            configs = {
                each: change(self._configure(column, cases, known[each], epochs, request), cases)
                for each in self._trials(column)
            }
            found[cases.name, column.name] = _cell(request, cases, name, configs, partial(measure, cases))
        return found

    def loads(self, request: Request, columns: Sequence[Column], needs: Sequence[Need], fits: Fits) -> list[Load]:
        """The loads of training these columns on data of the usual size."""
        scale = self.scale(request)
        shapes = (
            (min(scale.size, n.side), n.channels, n.classes, n.concepts, min(n.images, scale.train or n.images))
            for n in needs
        )
        return self._loads(columns, shapes, fits)

    def _loads(
        self, columns: Sequence[Column], shapes: Iterable[tuple[int, int, int, int, int]], fits: Fits
    ) -> list[Load]:
        return [
            Load(column, size, channels, classes, self._concepts(column, concepts), images, trial)
            for size, channels, classes, concepts, images in shapes
            for column in columns
            if column.kind and fits(column, range(concepts))
            for trial in self._trials(column)
        ]

    def _trials(self, column: Column) -> Sequence[str]:
        """The optimizers that a column is trained by."""
        return ("muon",) if column.as_printed else self.optimizers

    def _concepts(self, column: Column, named: int) -> int:
        return named if named and self.concepts and find_model(column.kind).names_concepts else column.unnamed

    def _epochs(
        self, request: Request, columns: Sequence[Column], sets: Sequence[TableCases], fits: Fits, log: Log
    ) -> int:
        """The budget's, or as many as fit into an hour here, settled once for all processes."""
        folder = self.folder(request)
        file = folder / "plan.json"
        known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
        epochs = request.epochs or (self.scale(request).epochs if known is None else int(known["epochs"]))
        if epochs is None:
            shapes = (
                (each.size, each.channels, len(each.data.classes), len(each.data.concepts), len(each.rows("train")))
                for each in sets
            )
            loads = self._loads(columns, shapes, fits)
            epochs = fitting_epochs(len(loads), seconds_per_epoch(loads, log), self.most)
            log(f"{epochs} epochs for each, so that all take about an hour here")
        return int(settle(folder, {"epochs": epochs, "seed": request.seed})["epochs"])

    def _configure(
        self, column: Column, cases: TableCases, optimizer: Mapping[str, Any], epochs: int, request: Request
    ) -> Config:
        training = {**_PLAIN, **optimizer, "epochs": epochs, "batch_size": self.batch, "seed": request.seed, **_EQUAL}
        config = Config()
        if column.as_printed:  # all but the epochs and which of them is kept
            recipe = column.printed_recipe(cases.size)
            assert recipe.augmentation is not None
            config = config.change("augmentation", **recipe.augmentation.model_dump())
            training |= {name: getattr(recipe.training, name) for name in recipe.training.model_fields_set}
            training |= {"epochs": epochs, "keep": _EQUAL["keep"]}
        return (
            config.change("data", path=cases.path, split=str(cases.split_file))
            .change("model", **column.model_section(cases.size, self._concepts(column, len(cases.data.concepts))))
            .change("preparation", channels=cases.channels, scaling=scaling_of(cases.data))
            .change("training", **training)
            .change("training", **column.training)
        )


def _cell(
    request: Request, cases: TableCases, name: str, configs: Mapping[str, Config], measure: Callable[[Run], Measured]
) -> Cell:
    split = str(cases.split_file)
    if len(configs) == 1:
        [config] = configs.values()
        return Cell(name, measure, config, split)
    # a trial is measured only if it is the best
    trials = {key: Cell(f"{name}-{key}", lambda run: {}, config, split) for key, config in configs.items()}
    folders = {key: request.out / "cells" / each.name for key, each in trials.items()}
    return Cell(name, partial(_measure_best, measure, cases.rows("val"), folders), after=tuple(trials.values()))


def settle(folder: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The epochs and seed of a protocol, written once by the first process and refused if they differ later."""
    make_private_folder(folder)
    file = folder / "plan.json"
    with FileLock(folder / ".plan.lock", mode=0o600):
        if not file.is_file():
            write_text(file, json.dumps(dict(wanted), indent=2) + "\n", private=True)
        stored: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    for name, value in wanted.items():
        if stored.get(name) != value:
            raise ValueError(f"{file} has {name}={stored.get(name)}, but {value} is wanted; choose another --out")
    return stored


def optimizers(column: Column, *, epochs: int, batch: int, published: bool) -> dict[str, dict[str, Any]]:
    """Optimizer settings by name: `muon` as the package chooses, `usual` as most would, by AdamW.

    With `published`, the model's published recipe is its usual one if the package ships it; such recipes are made for
    hundreds of epochs. Its learning rate is scaled from its batch size to ours, by the square root of the ratio, for
    SGD by the ratio; `decay_epochs` by the ratio of epochs.

    >>> optimizers(Column("CBM", "CBM"), epochs=10, batch=16, published=False)
    {'muon': {}, 'usual': {'optimizer': 'adamw', 'learning_rate': 0.001}}
    """
    shipped = {name.replace("-", ""): name for name in shipped_configs()}
    name = column.recipe or shipped.get(column.kind.lower(), "")
    section = load_config(name).training if published and name else None
    found = {} if section is None else {k: getattr(section, k) for k in _OF_A_RECIPE if k in section.model_fields_set}
    if section is not None and "learning_rate" in found and section.batch_size != "auto":
        ratio = batch / section.batch_size
        found["learning_rate"] *= ratio if section.optimizer == "sgd" else ratio**0.5
    if section is not None and "decay_epochs" in found and section.epochs != "auto":
        found["decay_epochs"] *= epochs / section.epochs
    return {"muon": {}, "usual": found or dict(_ADAMW)}


def _measure_best(
    measure: Callable[[Run], Measured], rows: Sequence[int], trials: Mapping[str, Path], run: Run
) -> Measured:
    found = {name: validate(rows, Run(folder)) for name, folder in trials.items()}
    best = min(found, key=lambda name: found[name])
    measured = dict(measure(Run(trials[best])))
    if (answers := trials[best] / PREDICTIONS).is_file():
        shutil.copyfile(answers, run.folder / PREDICTIONS)
    losses = ", ".join(f"{name} {loss:.3f}" for name, loss in found.items())
    trained = measured.get("trained", {})
    return {**measured, "trained": {**trained, "validation log loss": losses}}


def validate(rows: Sequence[int], run: Run) -> float:
    """The log loss of a run on the validation rows, at its own temperature; 0 without rows."""
    cases = CaseSet(run.data, run.prepared, rows)
    if not len(cases):
        return 0.0
    scores = score(predict_cases(run.model, cases), temperature=run.model.calibration.temperature, resamples=0)
    return scores["nll"].value or 0.0


def keep_scores(run: Run, rows: Sequence[int]) -> Measured:
    """Score a run on these cases, and keep its answers for paired tests."""
    predictions = predict_cases(run.model, CaseSet(run.data, run.prepared, rows))
    predictions.save(run.folder / PREDICTIONS)
    return {"scores": score(predictions).as_dict(), **keep_training(run)}


def keep_training(run: Run) -> Measured:
    """What a run was trained with, by heading, and the hash of its split."""
    training, about = run.config.training, run.about
    losses = next((c.removeprefix("losses: ") for c in about["choices"] if c.startswith("losses: ")), "")
    trained = {
        "parameters": str(count_parameters(run.model.network)),
        "image size": f"{run.config.model.image_size} px",
        "epochs": f"{about['epochs']}, {training.keep} kept",
        "losses": losses.partition(" (")[0],
        "optimizer": f"{training.optimizer}, {training.learning_rate:g}",
        "batch": f"{training.batch_size}",
        "images": f"{len(run.rows('train')):,}",
        "seed": f"{training.seed}",
        "time": duration(about["seconds"]) if about["seconds"] >= 60 else f"{about['seconds']:.0f} seconds",
    }
    return {"trained": trained, "split": about["split_hash"]}
