"""What a leak is worth: the same model on CE-MRI under the draws of the authors' release, by slice, and by patient.

In the release, training and test slices are two separate random draws from all slices, so most test slices are training
slices too. A split file has each case once; so such a case stands in it as a training case, and is tested all the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.data.split_file import Division
from parsecaps.data.splits import hold_out
from parsecaps.metrics import Difference, Score, Weighted, means
from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.predictions import Predictions, group_numbers
from parsecaps.paper.classification import COLUMNS
from parsecaps.paper.needs import CEMRI, choose_data
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Scale, Table, Work, choose_columns
from parsecaps.paper.protocol import Cases, share_cases, thin
from parsecaps.paper.published import Published, published
from parsecaps.paper.trained import (
    EQUAL,
    Protocol,
    keep_scores,
    predictions_of,
    scaled,
    scores_of,
    status_of,
    usual_notes,
)
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_pictures import draw_intervals
from parsecaps.run import Run

SHARE = 0.2  # of the slices, or of the patients, is tested
BY_PATIENT, BY_SLICE, TWICE = "by patient", "one draw of slices", "two independent draws"
PROTOCOL = Protocol("leak", {"quick": Scale(2, 64, train=300), "hour": Scale(None, 64), "full": Scale(300, 112)})
MEASURES = (
    Measure("accuracy", "accuracy"),
    Measure("seen", "accuracy on images that were trained on"),
    Measure("patient_seen", "accuracy on other images of patients that were trained on"),
    Measure("unseen", "accuracy on patients never seen"),
)


@dataclass(frozen=True)
class Way:
    """A way to divide: the split that trains, and the rows that are tested, whoever was trained on."""

    name: str
    cases: Cases
    tested: tuple[int, ...]


class Leak(Table):
    """What the leak is worth, in points."""

    name = "leak"
    title = "What the leak is worth: the same model, divided in three ways"
    paper = "ParseCaps paper, Tab. 1, by the draws of the authors' release"
    needs = (CEMRI,)

    def prepare(self, request: Request, log: Log) -> "LeakWork":
        columns = choose_columns(COLUMNS, request.models or ("ParseCaps",), self.name)
        [(path, data)] = choose_data(request.data[:1], self.needs)
        folder, scale = PROTOCOL.folder(request), PROTOCOL.scale(request)
        ways = []
        for name, tested, division in divisions(data, _universe(data, scale.train), seed=0):
            cases = share_cases(folder, path, data, scale, name=name.replace(" ", "-"), division=division)
            ways.append(Way(name, cases, tested))
        log(
            f"{sum(row in set(ways[0].cases.rows('train')) for row in ways[0].tested):,} of "
            f"{len(ways[0].tested):,} test images of the two draws are training images too"
        )
        grid = PROTOCOL.cells(request, columns, [way.cases for way in ways], log)
        cells = {}
        for way in ways:
            for column in columns:
                cell = grid[way.cases.name, column.name]
                assert cell.config is not None
                leaks = way.name != BY_PATIENT
                config = cell.config.change("data", allow_leaks=leaks) if leaks else cell.config
                cells[way.name, column.name] = Cell(cell.name, partial(_measure, rows=way.tested), config, cell.cases)
        printed = published(self.name) if data.source == "cemri" else Published()
        return LeakWork(self, request, columns, ways, cells, printed)

    def loads(self, request: Request) -> list[Load]:
        columns = choose_columns(COLUMNS, request.models or ("ParseCaps",), self.name)
        return 3 * PROTOCOL.loads(request, columns, self.needs)


@dataclass
class LeakWork(Work):
    """One section for each model, one row for each way to divide."""

    table: Table
    request: Request
    columns: Sequence[Column]
    ways: Sequence[Way]
    grid: Mapping[tuple[str, str], Cell]
    printed: Published

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return list(self.grid.values())

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        sections = []
        for column in self.columns:
            answers = {
                way.name: predictions_of(self.request.out, cell)
                for way in self.ways
                if (cell := self.grid[way.name, column.name]).name in measured
            }
            rows = []
            for way in self.ways:
                cell = self.grid[way.name, column.name]
                kept = measured.get(cell.name)
                theirs = self.printed.figure(way.name, "accuracy") if column.name == "ParseCaps" else None
                figures = {"accuracy": Figure.of(_accuracy(kept), theirs)}
                if kept is not None:
                    figures |= {key: Figure.of(Score(**kept[key])) for key in ("seen", "patient_seen", "unseen")}
                known = BY_PATIENT in answers and way.name in answers and way.name != BY_PATIENT
                rows.append(
                    Row(
                        way.name,
                        figures,
                        status_of(column, cell, measured, failed),
                        {} if kept is None else kept["trained"],
                        over_patients(answers[BY_PATIENT], answers[way.name]) if known else None,
                        self.printed.by(way.name) if theirs else "",
                        "" if kept is None else kept["counts"],
                    )
                )
            sections.append(
                Section(column.name, MEASURES, rows, "; ".join(_describe(way) for way in self.ways), BY_PATIENT)
            )
        notes = usual_notes(self.request, [way.cases for way in self.ways])[:1]
        notes.append("All three train on about as many images for as many epochs; what differs is who is tested.")
        notes.append(
            "The difference to the row by patient is what the leak is worth, in points; patients are resampled."
        )
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            EQUAL[1:],
            sections,
            notes=notes,
            remarks=[f"{self.printed.source}."] if self.printed.rows else [],
            missing=[cell.name.partition("/")[2] for cell in self.cells if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        draw_intervals(path, result.sections, MEASURES[:1], reference=BY_PATIENT)


def divisions(data: DataSet, rows: Sequence[int], seed: int) -> list[tuple[str, tuple[int, ...], Division]]:
    """The three ways: their names, the rows that are tested, and who trains (`train`) or is tested only (`test`)."""

    def division(trained: Sequence[int], tested: Sequence[int]) -> Division:
        parts: Division = [None] * len(data)
        for row in tested:
            parts[row] = "test"
        for row in trained:  # last: who is in both trains
            parts[row] = "train"
        return parts

    first, draws = independent_draws(len(rows), SHARE, seed)
    trained = [rows[i] for i, part in zip(first, draws, strict=True) if part == "train"]
    tested = [rows[i] for i, part in zip(first, draws, strict=True) if part == "test"]
    ways = [(TWICE, tuple(tested), division(trained, tested))]
    for name, parts in (
        (BY_SLICE, random_slices(len(rows), SHARE, seed)),
        (BY_PATIENT, hold_out(data.subset(rows), val=0, test=SHARE, seed=seed)),
    ):
        own = {part: [row for row, p in zip(rows, parts, strict=True) if p == part] for part in ("train", "test")}
        ways.append((name, tuple(own["test"]), division(own["train"], own["test"])))
    return ways


def independent_draws(count: int, share: float, seed: int) -> tuple[list[int], Division]:
    """Rows of two independent draws, one after the other: `1 - share` to train on and `share` to test on."""
    random = np.random.default_rng(seed)
    train = random.permutation(count)[: round((1 - share) * count)].tolist()
    test = random.permutation(count)[: round(share * count)].tolist()
    division: Division = ["train" if i < len(train) else "test" for i in range(len(train) + len(test))]
    return train + test, division


def random_slices(count: int, share: float, seed: int) -> Division:
    """One draw of slices, whoever they belong to."""
    tested = set(np.random.default_rng(seed).permutation(count)[: round(share * count)].tolist())
    return ["test" if i in tested else "train" for i in range(count)]


def over_patients(first: Predictions, second: Predictions, *, resamples: int = 1000, seed: int = 0) -> Difference:
    """The accuracy of `second` minus that of `first`, in points, each on its own cases, over patients drawn for both.

    A patient who is drawn twice counts twice in both, so that what the two share does not widen the interval.
    """
    right = [(each.logits.argmax(1) == each.label).astype(float) for each in (first, second)]
    group = group_numbers([*first.patient, *second.patient])
    values, own = np.concatenate(right), np.repeat([0, 1], [len(first), len(second)])

    def accuracies(weights: np.ndarray) -> list[np.ndarray]:
        found = []
        for which in (0, 1):
            mask = own == which
            cases = Weighted(range(int(mask.sum())), weights[mask])
            found.append(cases.mean(values[mask]))
        return found

    drawn = [accuracies(block) for block in resampled_weights(group, resamples, seed)]
    differences = np.concatenate([b - a for a, b in drawn]) if drawn else np.empty(0)
    a, b = (float(each[0]) for each in accuracies(np.ones((len(values), 1))))
    patients = min(len(set(each.patient)) for each in (first, second))
    return scaled(Difference.of(a, b, differences, patients), 100)


def _universe(data: DataSet, most: int | None) -> list[int]:
    """The cases that take part: all, or those of some patients at a small budget."""
    everyone: Division = ["train"] * len(data)
    kept = thin(data, everyone, {"train": most})
    return [i for i, part in enumerate(kept) if part is not None]


def _measure(run: Run, rows: Sequence[int]) -> Measured:
    """The scores on all tested rows, and apart on those that were trained on, whose patient was, and the rest."""
    kept = dict(keep_scores(run, rows))
    tested, trained = CaseSet(run.data, run.prepared, rows), set(run.rows("train"))
    patients = {run.data.cases[row].patient for row in trained}
    answers = Predictions.load(run.folder / "predictions.npz")
    right = (answers.logits.argmax(1) == answers.label).astype(float)
    seen = np.array([row in trained for row in tested.rows])
    known = np.array([case.patient in patients for case in tested])
    for key, mask in (("seen", seen), ("patient_seen", known & ~seen), ("unseen", ~known)):
        [found] = means(np.where(mask, right, np.nan)[:, None], answers.groups(), resamples=1000, seed=0).scores()
        kept[key] = vars(found)
    also = int((known & ~seen).sum())
    counts = f"{int(seen.sum())} of {len(tested)} test images were trained on, {also} more are of such patients"
    return {**kept, "counts": counts}


def _accuracy(kept: Measured | None) -> Score | None:
    scores = scores_of(kept)
    return None if scores is None else scores["accuracy"]


def _describe(way: Way) -> str:
    return f"{way.name}: {len(way.cases.rows('train')):,} images train, {len(way.tested):,} are tested"
