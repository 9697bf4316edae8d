"""A table of a paper, measured again: ours, the published figure and the difference, in Markdown and in a terminal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from parsecaps.metrics import Difference, Score
from parsecaps.report.pages import render
from parsecaps.types import Grid

NOTHING = "-"


@dataclass(frozen=True)
class Measure:
    """What a column of figures is: its key, its title, its unit, and how its numbers are written."""

    key: str
    title: str
    digits: int = 1
    unit: str = "%"
    lower_is_better: bool = False
    intervals: bool = True

    def number(self, value: float | None, sign: str = "", *, digits: int | None = None) -> str:
        """A value in the unit of the column; `sign` is "+" or blank, as in format strings.

        >>> Measure("a", "accuracy").number(88.888), Measure("n", "parameters", digits=0, unit="").number(3.6e6)
        ('88.9', '3,600,000')
        """
        if value is None:
            return NOTHING
        return f"{value:{sign},.{self.digits if digits is None else digits}f}"

    def interval(self, low: float | None, high: float | None, sign: str = "") -> str:
        if low is None or high is None or not self.intervals:
            return NOTHING
        return f"{self.number(low, sign)} to {self.number(high, sign)}"

    def published(self, value: float | None) -> str:
        """As in the paper: two places after the point, where ours has some."""
        return self.number(value, digits=2 if self.digits else 0)

    @property
    def heading(self) -> str:
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True)
class Figure:
    """A number of ours with its 95 % interval over patients and its `n`, and the published one; None where unknown.

    `difference` is ours minus the published one.
    """

    value: float | None = None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    published: float | None = None
    difference: float | None = field(init=False, default=None)

    @classmethod
    def of(cls, score: Score | None, published: float | None = None, *, scale: float = 100.0) -> "Figure":
        """A score on another scale, by default in per cent."""
        if score is None:
            return cls(published=published)
        value, low, high = (None if each is None else scale * each for each in (score.value, score.low, score.high))
        return cls(value, low, high, score.n, published)

    def __post_init__(self) -> None:
        if self.value is not None and self.published is not None:
            object.__setattr__(self, "difference", self.value - self.published)


@dataclass(frozen=True)
class TableRow:
    """One model, or one variant of it. `status` is blank for a measured one, else says why there is no figure of ours.

    `trained` is what it was trained with, by heading. `against` is the paired difference to the row of reference, in
    the unit of the section's first measure. `by` says who measured the published figures.
    """

    name: str
    figures: Mapping[str, Figure]
    status: str = ""
    trained: Mapping[str, str] = field(default_factory=dict)
    against: Difference | None = None
    by: str = ""
    note: str = ""

    def figure(self, measure: Measure) -> Figure:
        return self.figures.get(measure.key, Figure())


@dataclass(frozen=True)
class TableSection:
    """Rows that were measured on the same cases. `about` says on which; `reference` is the row that others are tested
    against, by the first of the `measures`.
    """

    title: str
    measures: Sequence[Measure]
    rows: Sequence[TableRow]
    about: str = ""
    reference: str = ""


@dataclass(frozen=True)
class Reproduced:
    """A whole table: which one of the paper, in which budget and by which protocol, its sections, and what to know."""

    name: str
    title: str
    paper: str
    budget: str
    protocol: Sequence[str]
    sections: Sequence[TableSection]
    notes: Sequence[str] = ()
    remarks: Sequence[str] = ()
    missing: Sequence[str] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""
    picture: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def tables(self) -> Iterator[Grid]:
        """Each section: ours, the published figure and the difference, of its first measure alone."""
        for section in self.sections:
            first = section.measures[0]
            rows = [_terminal_row(first, row) for row in section.rows]
            heads = ("", first.heading, "95 % interval", "published", "difference", f"p, against {section.reference}")
            kept = [i for i in range(len(heads)) if i < 2 or any(row[i] != NOTHING for row in rows)]
            yield Grid(section.title, [heads[i] for i in kept], [[row[i] for i in kept] for row in rows])

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def markdown(table: Reproduced) -> str:
    """The table as a page of Markdown."""
    trained = {row.name: row.trained for section in table.sections for row in section.rows if row.trained}
    heads = list(dict.fromkeys(head for each in trained.values() for head in each))
    rows = [[name, *(each.get(head, NOTHING) for head in heads)] for name, each in trained.items()]
    page = render(
        "reproduced.md", table=table, grid=_grid, trained=Grid("", ["", *heads], rows, left=range(len(heads) + 1))
    )
    return page.rstrip("\n") + "\n"


def _terminal_row(measure: Measure, row: TableRow) -> list[str]:
    figure = row.figure(measure)
    p_value = NOTHING if row.against is None or row.against.p_value is None else f"{row.against.p_value:.3f}"
    value = measure.number(figure.value) if not row.status else row.status.partition(":")[0]
    interval, printed = measure.interval(figure.low, figure.high), measure.published(figure.published)
    return [row.name, value, interval, printed, measure.number(figure.difference, "+"), p_value]


def _grid(section: TableSection) -> Grid:
    first, measures = section.measures[0], section.measures
    printed = any(row.figure(each).published is not None for row in section.rows for each in measures)
    columns = [each.heading + ": ours / published / difference" * printed for each in measures]
    tested = section.reference and any(row.against is not None for row in section.rows)
    if tested:
        columns.append(f"{first.title} minus that of {section.reference} (95 % interval, p)")
    rows = []
    for row in section.rows:
        cells = [row.name + (f" ({row.note})" if row.note else "")]
        for measure in measures:
            figure, status = row.figure(measure), row.status if measure is first else ""
            ours = status or measure.number(figure.value)
            if figure.value is not None and figure.low is not None and measure.intervals:
                ours += f" ({measure.interval(figure.low, figure.high)})"
            others = (measure.published(figure.published), measure.number(figure.difference, "+"))
            cells.append(" / ".join((ours, *others)) if printed else ours)
        rows.append([*cells, _test(first, row.against)] if tested else cells)
    return Grid(section.title, ["", *columns], rows, left=range(len(columns) + 1))


def _test(measure: Measure, found: Difference | None) -> str:
    text = measure.number(None if found is None else found.difference, "+")
    if found is None or found.low is None or found.p_value is None:
        return text
    return f"{text} ({measure.interval(found.low, found.high, '+')}, p {found.p_value:.3f})"
