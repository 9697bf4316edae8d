"""What tables of trained models share: cells of one protocol, their scores, and rows with paired tests."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from parsecaps.config import Config
from parsecaps.data.case_set import CaseSet
from parsecaps.metrics import Difference, Scores, paired_differences, score
from parsecaps.metrics.bootstrap import few_patients
from parsecaps.metrics.comparison import match
from parsecaps.metrics.predictions import Predictions, group_numbers
from parsecaps.models.summary import count_parameters
from parsecaps.paper.needs import Need, choose_data
from parsecaps.paper.optimizers import PREDICTIONS, measure_best, optimizers
from parsecaps.paper.pace import duration, epochs_in_an_hour
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Scale, Table, Work
from parsecaps.paper.protocol import BATCH, Cases, check_builds, configure, settle, settled, share_cases
from parsecaps.paper.published import Published
from parsecaps.prediction.predict import predict_cases
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_pictures import draw_intervals
from parsecaps.run import Run

REFERENCE = "ParseCaps"


@dataclass(frozen=True)
class Protocol:
    """Equal terms of several models: a name, by which cells are kept, and how much at which budget.

    Tables of the same protocol share their trainings. `most` epochs are those of the paper, in full. `concepts` says
    whether models learn the concepts of the data. With two `optimizers`, each model is trained by both, and the
    validation part chooses between the two runs; variants of one network share one.
    """

    name: str
    scales: Mapping[str, Scale]
    concepts: bool = False
    optimizers: Sequence[str] = ("muon",)
    batch: int = BATCH

    def scale(self, request: Request) -> Scale:
        """That of the budget."""
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
        sets: Sequence[Cases],
        log: Log,
        *,
        measure: Callable[[Cases, Run], Measured] | None = None,
        change: Callable[[Config], Config] = lambda config: config,
    ) -> dict[tuple[str, str], Cell]:
        """A cell for each column on each set, by the names of both; epochs are settled, and all models can be built."""
        built = [column for column in columns if column.kind]
        for cases in sets:  # before epochs are timed: what cannot be built cannot be timed
            first = [change(self._configs(column, cases, 1, request)[self.optimizers[0]]) for column in built]
            check_builds(built, first, cases)
        epochs = self._epochs(request, built, sets, log)
        found = {}
        for cases in sets:
            for column in built:
                own = re.sub(r"\W+", "-", column.name).strip("-")
                name = f"{self.folder(request).name}/{own if len(sets) == 1 else f'{cases.name}-{own}'}"
                how = partial(measure or _keep_test, cases)
                configs = {key: change(each) for key, each in self._configs(column, cases, epochs, request).items()}
                found[cases.name, column.name] = self._cell(request, cases, name, configs, how)
        return found

    def _cell(
        self,
        request: Request,
        cases: Cases,
        name: str,
        configs: Mapping[str, Config],
        measure: Callable[[Run], Measured],
    ) -> Cell:
        """One training that is measured, or one for each optimizer, of which the best is measured."""
        if len(configs) == 1:
            [config] = configs.values()
            return Cell(name, measure, config, str(cases.split_file))
        trials = {key: Cell(f"{name}-{key}", _nothing, each, str(cases.split_file)) for key, each in configs.items()}
        folders = {key: request.out / "cells" / each.name for key, each in trials.items()}
        best = partial(measure_best, measure, cases.rows("val"), folders)
        return Cell(name, best, after=tuple(trials.values()))

    def loads(self, request: Request, columns: Sequence[Column], needs: Sequence[Need]) -> list[Load]:
        """What training these columns on data of the usual size takes."""
        scale = self.scale(request)
        return [
            Load(
                column,
                min(scale.size, need.side),
                need.channels,
                need.classes,
                need.concepts if self.concepts else 0,
                min(need.images, scale.train or need.images),
                scale.epochs,
            )
            for need in needs
            for column in columns
            if column.kind
            for _ in self.optimizers
        ]

    def _configs(self, column: Column, cases: Cases, epochs: int, request: Request) -> dict[str, Config]:
        """The configuration of a model by the name of its optimizer."""
        published = request.budget == "full"
        known = optimizers(column, epochs=epochs, batch=self.batch, published=published)
        return {
            name: configure(
                column,
                cases,
                optimizer=known[name],
                epochs=epochs,
                seed=request.seed,
                concepts=self.concepts,
                batch=self.batch,
            )
            for name in self.optimizers
        }

    def _epochs(self, request: Request, columns: Sequence[Column], sets: Sequence[Cases], log: Log) -> int:
        """Those of the budget, or as many as fit into an hour here, once settled for all processes."""
        folder, scale = self.folder(request), self.scale(request)
        known = settled(folder)
        epochs = request.epochs or (scale.epochs if known is None else int(known["epochs"]))
        if epochs is None:
            loads = [
                Load(
                    column,
                    cases.size,
                    cases.channels,
                    len(cases.data.classes),
                    len(cases.data.concepts) if self.concepts else 0,
                    len(cases.rows("train")),
                    None,
                )
                for cases in sets
                for column in columns
                for _ in self.optimizers
            ]
            epochs = epochs_in_an_hour(loads, self.most, log)
            log(f"{epochs} epochs for each, so that all take about an hour here")
        return int(settle(folder, {"epochs": epochs, "seed": request.seed})["epochs"])


def one_set(protocol: Protocol, request: Request, needs: Sequence[Need], table: str) -> Cases:
    """The one data set of a table, with its split."""
    if len(request.data) > 1:
        raise ValueError(f"{table} takes one data set, and {len(request.data)} were given; give --data once")
    [(path, data)] = choose_data(request.data, needs)
    return share_cases(protocol.folder(request), path, data, protocol.scale(request))


def _keep_test(cases: Cases, run: Run) -> Measured:
    return keep_scores(run, cases.rows("test"))


def _nothing(run: Run) -> Measured:
    """What is kept of a trial, which is measured only if it is the best."""
    return {}


def keep_scores(run: Run, rows: Sequence[int]) -> Measured:
    """Score a run on these cases, and keep its answers for paired tests."""
    predictions = predict_cases(run.model, CaseSet(run.data, run.prepared, rows))
    predictions.save(run.folder / PREDICTIONS)
    return {"scores": score(predictions).as_dict(), "trained": trained_with(run), "split": run.about["split_hash"]}


def trained_with(run: Run) -> dict[str, str]:
    """What a run was trained with, by heading."""
    config, about = run.config, run.about
    training = config.training
    losses = next((c.removeprefix("losses: ") for c in about["choices"] if c.startswith("losses: ")), "")
    return {
        "parameters": str(count_parameters(run.model.network)),
        "image size": f"{config.model.image_size} px",
        "epochs": f"{about['epochs']}, {training.keep} kept",
        "losses": losses.partition(" (")[0],
        "optimizer": f"{training.optimizer}, {training.learning_rate:g}",
        "batch": f"{training.batch_size}",
        "images": f"{len(run.rows('train')):,}",
        "seed": f"{training.seed}",
        "time": duration(about["seconds"]) if about["seconds"] >= 60 else f"{about['seconds']:.0f} seconds",
    }


def scores_of(measured: Measured | None) -> Scores | None:
    """The scores that `keep_scores` kept."""
    return None if measured is None else Scores.from_dict(measured["scores"])


def status_of(column: Column, cell: Cell | None, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> str:
    """Blank where a cell is finished, else why there is no figure of ours."""
    if cell is None:
        return f"published only: {column.note}"
    if cell.name in measured:
        return ""
    return f"failed: {failed[cell.name]}" if cell.name in failed else "missing"


def paired(
    out: Path, cells: Mapping[str, Cell], measured: Mapping[str, Measured], *, reference: str = REFERENCE
) -> dict[str, Difference]:
    """The differences in accuracy, in points, of finished cells to that of the reference, by name.

    All over the same resamples of patients.
    """
    if reference not in cells or cells[reference].name not in measured:
        return {}
    first = predictions_of(out, cells[reference])
    found = {}
    for name, cell in cells.items():
        if name != reference and cell.name in measured:
            second = match(first, predictions_of(out, cell))
            found[name] = scaled(paired_differences(first, second, ["accuracy"])["accuracy"], 100)
    return found


def scaled(difference: Difference, scale: float) -> Difference:
    """The same on another scale; the p-value stays."""
    names = ("first", "second", "difference", "low", "high")
    return replace(
        difference,
        **{name: scale * value for name in names if (value := getattr(difference, name)) is not None},
    )


def predictions_of(out: Path, cell: Cell) -> Predictions:
    """The answers that `keep_scores` kept of a cell."""
    return Predictions.load(out / "cells" / cell.name / PREDICTIONS)


def model_rows(
    columns: Sequence[Column],
    cells: Mapping[str, Cell],
    measured: Mapping[str, Measured],
    failed: Mapping[str, str],
    figures: Callable[[Column, Scores | None], Mapping[str, Figure]],
    *,
    printed: Published,
    tests: Mapping[str, Difference],
) -> list[Row]:
    """A row for each column."""
    rows = []
    for column in columns:
        cell = cells.get(column.name)
        kept = measured.get(cell.name) if cell is not None else None
        rows.append(
            Row(
                column.name,
                figures(column, scores_of(kept)),
                status_of(column, cell, measured, failed),
                {} if kept is None else kept["trained"],
                tests.get(column.name),
                printed.by(column.name),
                column.note if column.kind else "",
            )
        )
    return rows


TWO_OPTIMIZERS = (
    "Each model is trained twice: by Muon at 0.0015, and by AdamW at 0.001 or, in the full budget, by its published "
    "recipe. The run with the lower log loss on the validation patients stands in the table."
)
Figures = Callable[[Cases, Column, Scores | None], Mapping[str, Figure]]
EQUAL = (
    "By patient, the same cases for all models, one seed; 95 % intervals and tests are over patients.",
    "Equal for all: images, augmentation, batches, epochs, averaged weights; the last epoch is kept. Each model has "
    "its published loss.",
)


@dataclass
class TrainedModels(Work):
    """Models that were trained on the same cases, on one data set or several: a section for each.

    `figures` are those of a column by its scores; `by_class` are the measures of a further section for each class.
    """

    table: Table
    request: Request
    columns: Sequence[Column]
    sets: Sequence[Cases]
    grid: Mapping[tuple[str, str], Cell]
    printed: Published
    measures: Sequence[Measure]
    figures: Figures
    by_class: Sequence[Measure] = ()
    reference: str = REFERENCE
    shown: int = 2  # measures in the picture
    notes: Sequence[str] = ()

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return list(self.grid.values())

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        sections = []
        for cases in self.sets:
            cells = {column: cell for (name, column), cell in self.grid.items() if name == cases.name}
            columns = [each for each in self.columns if each.kind or self.printed.rows]
            tests = paired(self.request.out, cells, measured, reference=self.reference)
            parts = columns, cells, measured, failed
            rows = model_rows(*parts, partial(self.figures, cases), printed=self.printed, tests=tests)
            title = cases.name if len(self.sets) > 1 else "All classes" if self.by_class else "Figures"
            reference = self.reference if tests else ""
            sections.append(Section(title, self.measures, rows, cases.describe(), reference))
            for name in cases.data.classes if self.by_class else ():
                rows = model_rows(*parts, partial(self._of_class, name), printed=self.printed, tests={})
                known = [row for row in rows if row.trained or any(f.published for f in row.figures.values())]
                sections.append(Section(name.capitalize(), self.by_class, known))
        printed = self.printed
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            [*EQUAL, *([TWO_OPTIMIZERS] if any(cell.after for cell in self.cells) else [])],
            sections,
            notes=[*usual_notes(self.request, self.sets), *self.notes],
            remarks=[f"{printed.source}.", *printed.remarks] if printed.rows else [],
            missing=[cell.name.partition("/")[2] for cell in self.cells if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        whole = [each for each in result.sections if each.about]
        draw_intervals(path, whole, self.measures[: self.shown], reference=self.reference)

    def _of_class(self, name: str, column: Column, scores: Scores | None) -> dict[str, Figure]:
        return {
            each.key: Figure.of(
                None if scores is None else scores.by_class[name][each.key],
                self.printed.figure(column.name, name, each.key),
            )
            for each in self.by_class
        }


def usual_notes(request: Request, sets: Sequence[Cases]) -> list[str]:
    """What to know of the figures of any table of trained models."""
    notes = []
    if request.budget != "full":
        notes.append("A short training: it shows that all works and gives a first idea, not how good a model can be.")
    for cases in sets:
        patients = len(set(group_numbers([cases.data.cases[row].patient for row in cases.rows("test")])))
        notes.append(
            f"{cases.name}: {patients:,} patients are tested, by one training of each model; another seed may differ "
            "by some points too."
        )
        notes += few_patients(patients)
        if cases.data.source == "cemri":
            notes.append(
                "CE-MRI: published figures are not by patient, so ours and theirs do not measure the same thing."
            )
    return notes
