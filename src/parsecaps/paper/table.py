"""One table or figure of the paper, declared: its data, columns, cells to train, and how a cell becomes a row."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

import yaml

from parsecaps.config import Config
from parsecaps.data.cases import DataSet
from parsecaps.metrics import Difference, Score, Scores, paired_differences
from parsecaps.metrics.bootstrap import few_patients
from parsecaps.metrics.comparison import match
from parsecaps.metrics.predictions import Predictions, group_numbers
from parsecaps.paper.cells import Cell, Column, Load, Log, Measured, Request, Scale, choose_columns
from parsecaps.paper.needs import Need, TableCases, choose_data, share_cases
from parsecaps.paper.protocol import PREDICTIONS, Protocol, keep_scores
from parsecaps.report.reproduced import Figure, Measure, Reproduced, TableRow, TableSection
from parsecaps.report.reproduced_pictures import draw_intervals
from parsecaps.run import Run

REFERENCE = "ParseCaps"
EQUAL = (
    "By patient, the same cases for all models, one seed; 95 % intervals and tests are over patients.",
    "Equal for all: images, augmentation, batches, epochs, averaged weights; the last epoch is kept. Each model has "
    "its published loss. One as printed has the paper's optimizer, batches and augmentation instead.",
)
TWO_OPTIMIZERS = (
    "Each model is trained twice: by Muon at 0.0015, and by AdamW at 0.001 or, in the full budget, by its published "
    "recipe. The run with the lower log loss on the validation patients stands in the table."
)


@dataclass(frozen=True)
class Published:
    """The published figures of one table: rows by name, remarks and source."""

    source: str = ""
    remarks: tuple[str, ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def figure(self, row: str, *keys: str) -> float | None:
        """A number by the name of its row and its keys; None if nothing was printed.

        >>> published("classification").figure("ParseCaps", "glioma", "recall")
        99.39
        """
        found: Any = self.rows.get(row, {})
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else None

    def by(self, row: str) -> str:
        """Who measured it."""
        return str(self.rows.get(row, {}).get("by", ""))


@cache
def published(table: str) -> Published:
    """The published figures of a table (`published.yaml`); nothing if they are pictures."""
    stored = yaml.safe_load((files("parsecaps.paper") / "published.yaml").read_text(encoding="utf-8"))
    found = stored.get(table, {})
    return Published(found.get("source", ""), tuple(found.get("remarks", ())), found.get("rows", {}))


@dataclass(frozen=True)
class Work:
    """A table ready to be filled; `printed` are the published figures, none if other data stand in."""

    table: "PaperTable"
    request: Request
    columns: Sequence[Column]
    sets: Sequence[TableCases]
    grid: Mapping[tuple[str, str], Cell]
    printed: Published
    cells: Sequence[Cell] = ()
    measured: Mapping[str, Measured] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_cells(self) -> list[Cell]:
        """The cells, each preceded by those it needs."""
        found: dict[str, Cell] = {}
        for cell in self.cells:
            found |= {each.name: each for each in (*cell.after, cell)}
        return list(found.values())

    def by_column(self, cases: TableCases | None = None) -> dict[str, Cell]:
        """The cells of one data set, the first if none is given, by the names of columns."""
        name = (cases or self.sets[0]).name
        return {column: cell for (own, column), cell in self.grid.items() if own == name}

    def kept(self, cell: Cell | None) -> Measured | None:
        """What was measured of a cell; None if it is not finished."""
        return None if cell is None else self.measured.get(cell.name)

    def finished(self) -> dict[str, tuple[Cell, Measured]]:
        """The finished cells of the first data set, each with what was measured, by the names of columns."""
        return {name: (cell, kept) for name, cell in self.by_column().items() if (kept := self.kept(cell)) is not None}

    def folder(self, cell: Cell) -> Path:
        """Where a cell is kept."""
        return self.request.out / "cells" / cell.name

    def predictions(self, cell: Cell) -> Predictions:
        """The answers that `keep_scores` kept of a finished cell."""
        return Predictions.load(self.folder(cell) / PREDICTIONS)

    def row(
        self, column: Column, cell: Cell | None, figures: Mapping[str, Figure], *, against: Difference | None = None
    ) -> TableRow:
        """The row of a column; one without a figure of ours says why."""
        kept, name = self.kept(cell), column.name
        status = ""
        if cell is None:
            status = f"published only: {column.note}"
        elif kept is None:
            status = f"failed: {self.failed[cell.name]}" if cell.name in self.failed else "missing"
        trained = {} if kept is None else kept["trained"]
        by = self.printed.by(column.published or name)
        return TableRow(name, figures, status, trained, against, by, self.table.note(column, kept))

    def paired(self, cells: Mapping[str, Cell], reference: str = REFERENCE) -> dict[str, Difference]:
        """The differences in accuracy of finished cells to the reference, in points, over the same resamples."""
        if self.kept(cells.get(reference)) is None:
            return {}
        first = self.predictions(cells[reference])
        found = {}
        for name, cell in cells.items():
            if name != reference and cell.name in self.measured:
                second = match(first, self.predictions(cell))
                found[name] = in_points(paired_differences(first, second, ["accuracy"])["accuracy"])
        return found


class PaperTable:
    """One table or figure of the paper (`parsecaps reproduce`), declared by its attributes and what it overrides."""

    name: ClassVar[str]
    title: ClassVar[str]
    paper: ClassVar[str]
    needs: ClassVar[Sequence[Need]] = ()
    columns: ClassVar[Sequence[Column]]
    usual_columns: ClassVar[Sequence[str]] = ()  # where no models are asked for; all if left out
    protocol: ClassVar[Protocol]
    one_set: ClassVar[bool] = True  # of data; else any of those needed
    measures: ClassVar[Sequence[Measure]] = ()
    by_class: ClassVar[Sequence[Measure]] = ()  # of a further section for each class
    reference: ClassVar[str] = REFERENCE  # that others are tested against; blank for no tests
    heading: ClassVar[str] = "Figures"
    shown: ClassVar[int] = 2  # measures in the picture
    terms: ClassVar[Sequence[str]] = EQUAL  # what is equal for all models
    usual_notes: ClassVar[int | None] = None  # the first so many; all if None
    more_notes: ClassVar[Sequence[str]] = ()
    remarks: ClassVar[Sequence[str]] = ()  # where the paper prints no numbers
    always_printed: ClassVar[bool] = False  # published figures stand beside other data too
    without_names: ClassVar[str] = ""  # what is the matter with data that name their concepts

    def choose(self, request: Request) -> list[Column]:
        """The columns that were asked for."""
        return choose_columns(self.columns, request.models or self.usual_columns, self.name)

    def loads(self, request: Request) -> list[Load]:
        """What has to be trained, in numbers that are known without the data."""
        return self.protocol.loads(request, self.choose(request), self.needs, self.fits)

    def prepare(self, request: Request, log: Log) -> Work:
        """Find and check everything needed, before any training starts."""
        columns, sets = self.choose(request), self.sets(request)
        known = any(self.knows(cases.data) for cases in sets)
        columns = [column for column in columns if column.kind or known]
        printed = published(self.name) if known or self.always_printed else Published()
        work = Work(self, request, columns, sets, self.grid(request, columns, sets, log), printed)
        return replace(work, cells=self.cells(work, log))

    def sets(self, request: Request) -> Sequence[TableCases]:
        """The data sets that were given or are here, each with its split."""
        if self.one_set and len(request.data) > 1:
            raise ValueError(f"{self.name} takes one data set, and {len(request.data)} were given; give --data once")
        found = choose_data(request.data, self.needs, one_of=not self.one_set)
        for path, data in found:
            self.check(path, data)
        folder = self.protocol.folder(request)
        sets = [share_cases(folder, path, data, self.scale(request, data)) for path, data in found]
        name, times = Counter(cases.name for cases in sets).most_common(1)[0]
        if times > 1:
            raise ValueError(
                f"two of the data sets are called {name}; rename a folder, or give them one after the other"
            )
        return sets

    def check(self, path: str, data: DataSet) -> None:
        """Refuse data that the table cannot be about."""
        if self.without_names and data.concepts:
            raise ValueError(f"{path} names its concepts, so {self.without_names}")
        if self.protocol.concepts and not data.concepts:
            titles = ", ".join(need.title for need in self.needs)
            raise ValueError(
                f"{path} names no concepts, and the models are compared by them; give {titles}, or such data"
            )

    def scale(self, request: Request, data: DataSet) -> Scale:
        """How large the table is on a data set."""
        return self.protocol.scale(request)

    def fits(self, column: Column, concepts: Sized) -> bool:
        """Whether a column can be trained on data with these concepts; if not, its row says so."""
        return True

    def knows(self, data: DataSet) -> bool:
        """Whether these are data of the paper, not others that stand in."""
        return data.source in {need.name for need in self.needs}

    def grid(
        self, request: Request, columns: Sequence[Column], sets: Sequence[TableCases], log: Log
    ) -> dict[tuple[str, str], Cell]:
        """The cells by the names of their data set and column."""
        measure = partial(self.measure, request)
        return self.protocol.cells(request, columns, sets, log, measure=measure, change=self.change, fits=self.fits)

    def cells(self, work: Work, log: Log) -> Sequence[Cell]:
        """All cells of the table, in order."""
        return list(work.grid.values())

    def change(self, config: Config, cases: TableCases) -> Config:
        """The settings of a model, with what is special to the table."""
        return config

    def measure(self, request: Request, cases: TableCases, run: Run) -> Measured:
        """What is kept of a trained run."""
        return keep_scores(run, cases.tested)

    def result(self, work: Work) -> Reproduced:
        """The table, with what is missing marked."""
        printed = work.printed
        return Reproduced(
            self.name,
            self.title,
            self.paper,
            work.request.budget,
            self.terms,
            self.sections(work),
            notes=self.notes(work),
            remarks=[f"{printed.source}.", *printed.remarks] if printed.rows else self.remarks,
            missing=[cell.name.partition("/")[2] for cell in work.cells if cell.name not in work.measured],
            failed={name.partition("/")[2]: why for name, why in work.failed.items()},
        )

    def sections(self, work: Work) -> list[TableSection]:
        """A section for each data set, followed by those of its classes."""
        return [section for cases in work.sets for section in self._sections(work, cases)]

    def _sections(self, work: Work, cases: TableCases) -> Iterator[TableSection]:
        cells = work.by_column(cases)
        tests = work.paired(cells, self.reference) if self.reference else {}
        found = [(column, cell := cells.get(column.name), work.kept(cell)) for column in work.columns]
        rows = [
            work.row(column, cell, self.figures(work, cases, column, kept), against=tests.get(column.name))
            for column, cell, kept in found
        ]
        title = cases.name if len(work.sets) > 1 else self.heading
        yield TableSection(title, self.measures_of(cases), rows, self.about(cases), self.reference if tests else "")
        for name in cases.data.classes if self.by_class else ():
            rows = []
            for column, cell, kept in found:
                scores = {} if kept is None else Scores.from_dict(kept["scores"]).by_class[name]
                figures = {
                    each.key: figure_of(
                        each, scores.get(each.key), work.printed.figure(column.published or column.name, name, each.key)
                    )
                    for each in self.by_class
                }
                if kept is not None or any(each.published for each in figures.values()):
                    rows.append(work.row(column, cell, figures))
            yield TableSection(name.capitalize(), self.by_class, rows)

    def measures_of(self, cases: TableCases) -> Sequence[Measure]:
        """What the columns of figures are on a data set."""
        return self.measures

    def about(self, cases: TableCases) -> str:
        """On which cases the rows of a section were measured."""
        return cases.describe()

    def figures(self, work: Work, cases: TableCases, column: Column, kept: Measured | None) -> dict[str, Figure]:
        """Our figures of a column (what its cell keeps, or the scores of those names) beside the published ones."""
        scores = {} if kept is None or "scores" not in kept else Scores.from_dict(kept["scores"]).single
        found = {}
        for each in self.measures_of(cases):
            ours = kept[each.key] if kept is not None and each.key in kept else scores.get(each.key)
            found[each.key] = figure_of(each, ours, self.printed(work, cases, column, each.key))
        return found

    def printed(self, work: Work, cases: TableCases, column: Column, key: str) -> float | None:
        """The published figure of a column."""
        return work.printed.figure(column.published or column.name, key)

    def note(self, column: Column, kept: Measured | None) -> str:
        """What to know of a row."""
        return column.note if column.kind else ""

    def notes(self, work: Work) -> list[str]:
        """Notes on the figures: the usual ones of trained models, and those of the table."""
        notes = []
        if work.request.budget != "full":
            notes.append(
                "A short training: it shows that all works and gives a first idea, not how good a model can be."
            )
        for cases in work.sets:
            patients = len(set(group_numbers([cases.data.cases[row].patient for row in cases.tested])))
            notes.append(
                f"{cases.name}: {patients:,} patients are tested, by one training of each model; another seed may "
                "differ by some points too."
            )
            notes += few_patients(patients)
            if cases.data.source == "cemri":
                notes.append(
                    "CE-MRI: published figures are not by patient, so ours and theirs do not measure the same thing."
                )
        return [*notes[: self.usual_notes], *self.more_notes]

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        """Draw the picture, if there is something to show yet."""
        whole = [each for each in result.sections if each.about]
        draw_intervals(path, whole, whole[0].measures[: self.shown], reference=self.reference)


def figure_of(measure: Measure, ours: Score | Mapping[str, Any] | float | None, theirs: float | None = None) -> Figure:
    """A score (perhaps as a dictionary) or a plain number, in the unit of its measure."""
    if isinstance(ours, Mapping):
        ours = Score(**ours)
    scale = 100.0 if measure.unit == "%" else 1
    return Figure.of(ours, theirs, scale=scale) if isinstance(ours, Score) else Figure(ours, published=theirs)


def in_points(difference: Difference) -> Difference:
    """A difference of shares in per cent; the p-value stays."""
    names = ("first", "second", "difference", "low", "high")
    changes = {name: 100 * value for name in names if (value := getattr(difference, name)) is not None}
    return replace(difference, **changes)
