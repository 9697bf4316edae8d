"""What `parsecaps audit` prints: the methods side by side, and the rest in a few lines."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parsecaps.audit.run import Audit
from parsecaps.metrics import Score
from parsecaps.report.audit_columns import COLUMNS, Column, grouped, interval, map_scores, number
from parsecaps.report.terminal import plain_table

if TYPE_CHECKING:
    from rich.table import Table

_UNADJUSTED = " With the batch statistics of the ordinary network; parsecaps remember RUN adjusts them."


def audit_tables(audit: Audit) -> "Iterator[Table]":
    """For concepts and for the diagnosis: a row for each method."""
    for about, maps in audit.maps.items():
        scores = {name: map_scores(each) for name, each in maps.items()}
        for title, columns in grouped(c for c in COLUMNS if any(c.key in each for each in scores.values())).items():
            titles = (f"{column.title}{' (low)' if column.low else ''}" for column in columns)
            table = plain_table(f"maps of {about}, {audit.mapped:,} cases: {title}", "method", *titles)
            for name, each in scores.items():
                table.add_row(name, *(_cell(column, each.get(column.key)) for column in columns))
            yield table


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
