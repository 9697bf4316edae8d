"""What a leak is worth: the same model on CE-MRI under the draws of the authors' release, by slice, and by patient.

In the release, training and test slices are two separate random draws from all slices, so most test slices are training
slices too. In a split file, which has each case once, such a case is a training case; it is tested all the same.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parsecaps.config import Config
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet, Division
from parsecaps.data.splits import hold_out
from parsecaps.metrics import Difference, means
from parsecaps.metrics.predictions import Predictions, group_numbers
from parsecaps.paper.cells import Column, Load, Log, Measured, Request, Scale
from parsecaps.paper.needs import CEMRI, TableCases, choose_data, share_cases, thin
from parsecaps.paper.protocol import PREDICTIONS, Protocol, keep_scores
from parsecaps.paper.table import EQUAL, PaperTable, Work, in_points
from parsecaps.paper.tumours import COLUMNS
from parsecaps.report.reproduced import Measure, TableRow, TableSection
from parsecaps.run import Run

SHARE = 0.2  # of the slices, or of the patients, is tested
BY_PATIENT, BY_SLICE, TWICE = "by patient", "one draw of slices", "two independent draws"


class LeakTable(PaperTable):
    """A section for each model, a row for each way to divide."""

    name = "leak"
    title = "What the leak is worth: the same model, divided in three ways"
    paper = "ParseCaps paper, Tab. 1, by the draws of the authors' release"
    needs = (CEMRI,)
    columns = COLUMNS
    usual_columns = ("ParseCaps", "ParseCaps, as printed")
    protocol = Protocol("leak", {"quick": Scale(2, 64, train=300), "hour": Scale(None, 112), "full": Scale(300, 112)})
    measures = (
        Measure("accuracy", "accuracy"),
        Measure("seen", "accuracy on images that were trained on"),
        Measure("patient_seen", "accuracy on other images of patients that were trained on"),
        Measure("unseen", "accuracy on patients never seen"),
    )
    reference = BY_PATIENT
    shown = 1
    terms = EQUAL[1:]
    usual_notes = 1
    more_notes = (
        "All three train on about as many images for as many epochs; what differs is who is tested.",
        "The difference to the row by patient is what the leak is worth, in points; patients are resampled.",
    )

    def loads(self, request: Request) -> list[Load]:
        return 3 * super().loads(request)

    def prepare(self, request: Request, log: Log) -> Work:
        work = super().prepare(request, log)
        twice = work.sets[0]
        both = set(twice.rows("train")) & set(twice.tested)
        log(f"{len(both):,} of {len(twice.tested):,} test images of the two draws are training images too")
        return work

    def sets(self, request: Request) -> list[TableCases]:
        [(path, data)] = choose_data(request.data[:1], self.needs)
        folder, scale = self.protocol.folder(request), self.protocol.scale(request)
        everyone: Division = ["train"] * len(data)
        parts = thin(data, everyone, {"train": scale.train})
        some = [row for row, part in enumerate(parts) if part is not None]
        return [
            replace(share_cases(folder, path, data, scale, name=way.replace(" ", "-"), given=division), tested=tested)
            for way, tested, division in divisions(data, some, seed=0)
        ]

    def change(self, config: Config, cases: TableCases) -> Config:
        return config if _way(cases) == BY_PATIENT else config.change("data", allow_leaks=True)

    def printed(self, work: Work, cases: TableCases, column: Column, key: str) -> float | None:
        return work.printed.figure(_way(cases), key) if "ParseCaps" in (column.name, column.published) else None

    def sections(self, work: Work) -> list[TableSection]:
        about = "; ".join(
            f"{_way(cases)}: {len(cases.rows('train')):,} images train, {len(cases.tested):,} are tested"
            for cases in work.sets
        )
        return [
            TableSection(each.name, self.measures, self._rows(work, each), about, BY_PATIENT) for each in work.columns
        ]

    def _rows(self, work: Work, column: Column) -> list[TableRow]:
        rows = []
        for cases in work.sets:
            way, cell = _way(cases), work.grid[cases.name, column.name]
            row = work.row(column, cell, self.figures(work, cases, column, work.kept(cell)))
            by = work.printed.by(way) if row.figures["accuracy"].published else ""
            apart, leak = work.grid[BY_PATIENT.replace(" ", "-"), column.name], None
            if cell != apart and work.kept(apart) is not None and work.kept(cell) is not None:
                leak = over_patients(work.predictions(apart), work.predictions(cell))
            rows.append(replace(row, name=way, by=by, against=leak))
        return rows

    def note(self, column: Column, kept: Measured | None) -> str:
        return "" if kept is None else str(kept["counts"])

    def measure(self, request: Request, cases: TableCases, run: Run) -> Measured:
        """The scores on all tested rows; also on those trained on, on others of trained patients, and on the rest."""
        kept = dict(keep_scores(run, cases.tested))
        tested, trained = CaseSet(run.data, run.prepared, cases.tested), set(run.rows("train"))
        patients = {run.data.cases[row].patient for row in trained}
        answers = Predictions.load(run.folder / PREDICTIONS)
        right = (answers.logits.argmax(1) == answers.label).astype(float)
        seen = np.array([row in trained for row in tested.rows])
        known = np.array([patient in patients for patient in tested.patients])
        for key, mask in (("seen", seen), ("patient_seen", known & ~seen), ("unseen", ~known)):
            [found] = means(np.where(mask, right, np.nan)[:, None], answers.groups(), resamples=1000, seed=0).scores()
            kept[key] = vars(found)
        also = int((known & ~seen).sum())
        counts = f"{int(seen.sum())} of {len(tested)} test images were trained on, {also} more are of such patients"
        return {**kept, "counts": counts}


def _way(cases: TableCases) -> str:
    return cases.name.replace("-", " ")


def divisions(data: DataSet, rows: Sequence[int], seed: int) -> list[tuple[str, tuple[int, ...], Division]]:
    """The three ways: their names, the rows that are tested, and who trains (`train`) or is tested only (`test`)."""
    ways: dict[str, tuple[Sequence[int], Division]] = {
        TWICE: independent_draws(len(rows), SHARE, seed),
        BY_SLICE: (range(len(rows)), random_slices(len(rows), SHARE, seed)),
        BY_PATIENT: (range(len(rows)), hold_out(data.subset(rows), val=0, test=SHARE, seed=seed)),
    }
    found = []
    for name, (places, parts) in ways.items():
        division: Division = [None] * len(data)
        pairs = [(part, rows[i]) for i, part in zip(places, parts, strict=True)]
        for own in ("test", "train"):  # last: who is in both trains
            for row in (row for part, row in pairs if part == own):
                division[row] = own
        found.append((name, tuple(row for part, row in pairs if part == "test"), division))
    return found


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


def over_patients(first: Predictions, second: Predictions) -> Difference:
    """The accuracy of `second` minus that of `first`, in points, each on its own cases, over patients drawn for both.

    A patient who is drawn twice counts twice in both, so that what the two share does not widen the interval.
    """
    right = np.full((len(first) + len(second), 2), np.nan)
    for which, rows, each in ((0, slice(len(first)), first), (1, slice(len(first), None), second)):
        right[rows, which] = each.logits.argmax(1) == each.label
    found = means(right, group_numbers([*first.patient, *second.patient]))
    a, b = found.value.tolist()
    return in_points(Difference.of(a, b, found.draws[1] - found.draws[0], int(found.patients.min())))
