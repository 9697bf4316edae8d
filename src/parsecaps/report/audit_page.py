"""The page of `parsecaps audit`: methods side by side, curves, routes, concepts and redundancy, in one file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parsecaps.audit.concepts import ConceptAudit
from parsecaps.audit.couplings import RouteAblation
from parsecaps.audit.maps import MapAudit, TargetLocalisation
from parsecaps.audit.redundancy import LayerSimilarity
from parsecaps.audit.run import REDUNDANCY_CASES, Audit
from parsecaps.metrics import Score, find_metric
from parsecaps.report.pages import Chart, line_chart, render
from parsecaps.report.scores_page import COLOURS
from parsecaps.report.terminal_audit import COLUMNS, Column, grouped, interval, map_scores, number

_RANDOM = "random order"
_TITLES = {"concepts": "Concepts", "classes": "Diagnosis"}


def audit_page(audit: Audit, *, title: str = "How far the explanations can be trusted") -> str:
    """The whole page as HTML."""
    return render(
        "audit.html",
        title=title,
        audit=audit,
        titles=_TITLES,
        tables={about: _table(maps) for about, maps in audit.maps.items()},
        curves={about: _curves(maps) for about, maps in audit.maps.items()},
        sanity={about: _sanity(maps) for about, maps in audit.maps.items()},
        routes={about: (each, _cuts(each)) for about, each in audit.routes.items()},
        interventions=_interventions(audit.concepts),
        histograms=[_histogram(layer) for layer in audit.redundancy],
        colours=COLOURS,
        number=number,
        interval=interval,
        grouped=grouped,
        redundancy_cases=REDUNDANCY_CASES,
        find_metric=find_metric,
    )


@dataclass(frozen=True)
class _Table:
    """Methods side by side: the columns that were measured, the scores by method and column, the best of each column.

    `targets` are the rows of the table of targets: each with its localisation by every method that has one.
    """

    columns: list[Column]
    scores: dict[str, dict[str, Score]]
    best: dict[str, str]
    located: list[str]
    targets: list[list[TargetLocalisation]]


def _table(maps: Mapping[str, MapAudit]) -> _Table:
    scores = {name: map_scores(each) for name, each in maps.items()}
    columns = [column for column in COLUMNS if any(column.key in each for each in scores.values())]
    best = {}
    for column in columns:
        found = {name: each[column.key].value for name, each in scores.items() if column.key in each}
        known = {name: value for name, value in found.items() if value is not None}
        if len(known) > 1:
            best[column.key] = (min if column.low else max)(known.items(), key=lambda item: item[1])[0]
    located = {name: each.localisation.targets for name, each in maps.items() if each.localisation is not None}
    return _Table(columns, scores, best, list(located), [list(row) for row in zip(*located.values(), strict=True)])


def _curves(maps: Mapping[str, MapAudit]) -> list[tuple[str, Chart]]:
    found = {name: each.faithfulness for name, each in maps.items() if each.faithfulness is not None}
    if not found:
        return []
    first = next(iter(found.values()))
    labels = [f"{100 * share:.0f}" if i % 4 == 0 else "" for i, share in enumerate(first.covered)]
    charts = []
    for what, below in (("deletion", "% of regions covered"), ("insertion", "% of regions uncovered")):
        lines: dict[str, Sequence[float]] = {name: getattr(each, what) for name, each in found.items()}
        lines[_RANDOM] = getattr(first, f"random_{what}")
        beside = "probability or presence"
        chart = line_chart(what, lines, COLOURS, below=below, beside=beside, labels=labels, dashed=[_RANDOM])
        charts.append((what.capitalize(), chart))
    return charts


def _sanity(maps: Mapping[str, MapAudit]) -> list[tuple[str, Chart]]:
    found = {name: each.randomised for name, each in maps.items() if each.randomised is not None}
    if not found:
        return []
    stages = ["whole", *next(iter(found.values())).stages]
    labels = [str(i) if i % 2 == 0 else "" for i in range(len(stages))]
    charts = []
    for title, what in (("Rank correlation", "spearman"), ("Structural similarity", "ssim")):
        lines = {name: [1.0, *_values(getattr(each, what))] for name, each in found.items()}
        chart = line_chart(
            title, lines, COLOURS, below="stages made random, from the top", beside="likeness", labels=labels, low=-0.2
        )
        charts.append((title, chart))
    return charts


def _cuts(ablation: RouteAblation) -> Chart:
    lines = {
        "shown routes": ablation.shown,
        "strongest couplings": ablation.strongest,
        "random routes": ablation.random,
    }
    labels = [f"{100 * share:g}" for share in ablation.shares]
    below, beside = "% of the routes cut", "probability or presence"
    return line_chart("Routes cut", lines, COLOURS, below=below, beside=beside, labels=labels, dashed=["random routes"])


def _interventions(concepts: ConceptAudit | None) -> Chart | None:
    if concepts is None or not concepts.interventions:
        return None
    names = {"uncertain": "uncertain ones first", "random": _RANDOM}
    lines = {names[curve.order]: curve.accuracy for curve in concepts.interventions}
    labels = [str(i) for i in range(len(concepts.interventions[0].accuracy))]
    low = min(0.5, *(min(values) for values in lines.values()))
    return line_chart(
        "Accuracy after corrections",
        lines,
        COLOURS,
        below="concepts corrected",
        beside="accuracy",
        labels=labels,
        low=low,
        dashed=[_RANDOM],
    )


def _histogram(layer: LayerSimilarity) -> tuple[LayerSimilarity, list[tuple[float, float]]]:
    """The layer, and for each bin where its bar begins and how high it is, both from 0 to 1."""
    most = max([*layer.share, 1e-9])
    return layer, [(i / len(layer.share), share / most) for i, share in enumerate(layer.share)]


def _values(scores: Sequence[Score]) -> list[float]:
    return [0.0 if score.value is None else score.value for score in scores]
