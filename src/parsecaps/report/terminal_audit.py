"""What an audit says, the same in the terminal and on the page: columns, tables and lines."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from parsecaps.audit.maps import MapAudit
from parsecaps.audit.run import Audit
from parsecaps.metrics import Comparison, Score, find_metric
from parsecaps.report.terminal import add_row, plain_table

if TYPE_CHECKING:
    from rich.table import Table


WHERE, WHETHER = "is it where the thing is", "does the decision rest on it"


class Column(NamedTuple):
    """A number of a method: its name, what it is, the question it answers, where an audit has it, and whether a low
    one is good.
    """

    key: str
    title: str
    about: str
    question: str
    score: Callable[[MapAudit], Score | None]
    low: bool = False
    sign: bool = False


def _located(name: str) -> Callable[[MapAudit], Score | None]:
    return lambda audit: None if audit.localisation is None else getattr(audit.localisation, name)


def _faithful(name: str) -> Callable[[MapAudit], Score | None]:
    return lambda audit: None if audit.faithfulness is None else getattr(audit.faithfulness, name)


def _randomised(audit: MapAudit) -> Score | None:
    return audit.randomised.spearman[-1] if audit.randomised is not None and audit.randomised.spearman else None


COLUMNS = (
    Column(
        "pointing",
        "pointing game",
        "how often the highest point is inside the mask",
        WHERE,
        _located("pointing"),
    ),
    Column(
        "needed",
        "where needed",
        "the same where the answer changes if what the mask covers is painted over",
        WHERE,
        _located("needed"),
    ),
    Column("mass", "relevance mass", "share of the map inside the mask", WHERE, _located("mass")),
    Column(
        "ratio",
        "times share",
        "relevance mass over the mask's share of the image; a map without a clue has 1",
        WHERE,
        _located("ratio"),
    ),
    Column(
        "iou",
        "IoU",
        "overlap with the mask at one threshold for all cases of a target, the best one",
        WHERE,
        _located("iou"),
    ),
    Column(
        "deletion_area",
        "deletion",
        "area under the curve as the most relevant regions are covered",
        WHETHER,
        _faithful("deletion_area"),
        low=True,
    ),
    Column(
        "deletion_gain",
        "gain",
        "how much lower than with regions in random order",
        WHETHER,
        _faithful("deletion_gain"),
        sign=True,
    ),
    Column(
        "insertion_area",
        "insertion",
        "area under the curve as the most relevant regions are uncovered",
        WHETHER,
        _faithful("insertion_area"),
    ),
    Column(
        "insertion_gain",
        "gain",
        "how much higher than with regions in random order",
        WHETHER,
        _faithful("insertion_gain"),
        sign=True,
    ),
    Column(
        "spearman",
        "random weights",
        "rank correlation with the maps of the model after parameter randomisation",
        WHETHER,
        _randomised,
        low=True,
    ),
)


def grouped(columns: Iterable[Column]) -> dict[str, list[Column]]:
    """The columns by the question they answer, so that no table is too wide; questions without columns are left out."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        groups.setdefault(column.question, []).append(column)
    return groups


def map_scores(audit: MapAudit) -> dict[str, Score]:
    """The scores of one method by the key of their column; those that were not measured are left out."""
    scores = {column.key: column.score(audit) for column in COLUMNS}
    return {key: score for key, score in scores.items() if score is not None}


def number(column: Column, value: float | None) -> str:
    """Two digits for a factor, three for all else.

    >>> number(COLUMNS[0], 0.9), number(COLUMNS[3], 4.25), number(COLUMNS[6], 0.1), number(COLUMNS[0], None)
    ('0.900', '4.25', '+0.100', '-')
    """
    if value is None:
        return "-"
    if column.key == "ratio":
        return f"{value:.2f}"
    return f"{value:+.3f}" if column.sign else f"{value:.3f}"


def interval(column: Column, score: Score) -> str:
    """The 95 % interval, blank where there is none."""
    return "" if score.low is None else f"{number(column, score.low)} to {number(column, score.high)}"


_UNADJUSTED = " With the batch statistics of the ordinary network; parsecaps remember RUN adjusts them."


def audit_tables(audit: Audit) -> "Iterator[Table]":
    """For concepts and for the diagnosis a row for each method; then what other couplings cost."""
    for about, maps in audit.maps.items():
        scores = {name: map_scores(each) for name, each in maps.items()}
        for title, columns in grouped(c for c in COLUMNS if any(c.key in each for each in scores.values())).items():
            titles = (f"{column.title}{' (low)' if column.low else ''}" for column in columns)
            table = plain_table(f"maps of {about}, {audit.mapped:,} cases: {title}", "method", *titles)
            for name, each in scores.items():
                add_row(table, name, *(_cell(column, each.get(column.key)) for column in columns))
            yield table
    if audit.couplings:
        yield couplings_table("other couplings", audit.couplings)


def couplings_table(title: str, compared: Mapping[str, Comparison]) -> "Table":
    """The scores of a network as it is and with other couplings; below each its difference and 95 % interval."""
    first = next(iter(compared.values()))
    metrics = {find_metric(name): each for name, each in first.differences.items()}
    title = f"{title}: {first.n:,} images of {first.patients:,} patients"
    table = plain_table(title, "couplings", *(metric.title for metric in metrics))
    add_row(table, "as they are", *(metric.number(each.first) for metric, each in metrics.items()))
    for name, comparison in compared.items():
        cells = []
        for metric in metrics:
            each = comparison.differences[metric.name]
            between = metric.difference_interval(each.low, each.high)
            cells.append(f"{metric.number(each.second)}\n{metric.difference(each.difference)} ({between})")
        add_row(table, name, *cells)
    return table


def audit_lines(audit: Audit) -> Iterator[str]:
    """What is hidden, routes, concepts, and what could not be measured."""
    for about, hidden in audit.hidden.items():
        what = "found in the cases that have them" if about == "concepts" else "right"
        for target in (hidden.overall, *hidden.targets):
            if target.shown.n:
                name = about if target is hidden.overall else f"{about}, {target.name}"
                yield (
                    f"{name} {what}: {_share(target.shown)}; painted over {_share(target.hidden)}, "
                    f"another place painted over {_share(target.elsewhere)}, n {target.shown.n:,}"
                )
    if audit.residuals is not None:
        yield audit.residuals.sentence()
    for about, ablation in audit.routes.items():
        yield (
            f"routes to {about} cut: {_signed(ablation.gain)} lower than with random ones, "
            f"{_signed(ablation.gain_on_strongest)} lower than with the strongest couplings"
        )
    concepts = audit.concepts
    if concepts is not None:
        for name, score in concepts.overall.items():
            yield f"{name.replace('_', ' ')}: {score.value:.3f}{_interval(score)}, n {score.n:,}"
        if concepts.shuffled is not None:
            each = concepts.shuffled
            yield f"accuracy {each.accuracy:.3f}, with others' concepts {each.shuffled:.3f} (chance {each.chance:.3f})"
        if concepts.leakage is not None:
            yield f"leakage: {concepts.leakage.accuracy.difference:+.3f} of accuracy"
        for curve in concepts.interventions:
            steps = ", ".join(f"{value:.3f}" for value in curve.accuracy)
            yield f"accuracy after corrections, {curve.order}: {steps}"
    if audit.strict is not None:
        yield f"strict tree: {audit.strict.sentence()}{'' if audit.strict.adjusted else _UNADJUSTED}"
    for note in audit.notes:
        yield f"note: {note}"


def _cell(column: Column, score: Score | None) -> str:
    return "" if score is None else f"{number(column, score.value)}\n{interval(column, score)}"


def _signed(score: Score) -> str:
    return "-" if score.value is None else f"{score.value:+.3f}{_interval(score)}"


def _share(score: Score) -> str:
    return "-" if score.value is None else f"{score.value:.3f}{_interval(score)}"


def _interval(score: Score) -> str:
    return "" if score.low is None else f" ({score.low:.3f} to {score.high:.3f})"
