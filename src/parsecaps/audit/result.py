"""What an audit found, as numbers, tables, lines and charts."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from parsecaps.audit.ablation import Residuals, RouteAblation
from parsecaps.audit.audit_cases import About
from parsecaps.audit.concept_audit import ConceptAudit
from parsecaps.audit.inpainting import Inpainted
from parsecaps.audit.maps import MapAudit
from parsecaps.audit.redundancy import LayerSimilarity
from parsecaps.explain.strict_tree import StrictCost
from parsecaps.metrics import Comparison, Score, find_metric
from parsecaps.types import Cell, Grid, LineChart

REDUNDANCY_CASES = 64
_RANDOM, _EFFECT = "random order", "probability or presence"
_UNADJUSTED = " With the batch statistics of the ordinary network; parsecaps remember RUN adjusts them."


class MapColumn(NamedTuple):
    """A number that every method has: its title, what it is, its place in an audit, and whether a low one is good."""

    title: str
    about: str
    part: str
    name: str
    low: bool = False
    number: str = ".3f"

    def score(self, audit: MapAudit) -> Score | None:
        found: Score | list[Score] | None = getattr(getattr(audit, self.part), self.name, None)
        if isinstance(found, list):
            return found[-1] if found else None
        return found

    def cell(self, score: Score, *, bold: bool = False) -> Cell:
        text = "-" if score.value is None else format(score.value, self.number)
        between = "" if score.low is None else f"{score.low:{self.number}} to {score.high:{self.number}}"
        return Cell(text, between, score.n, bold)


_POINTING = "how often the highest point is inside the mask"
_NEEDED = "the same where the answer changes if what the mask covers is painted over"
_RATIO = "relevance mass over the mask's share of the image; a map without a clue has 1"
_IOU = "overlap with the mask at one threshold for all cases of a target, the best one"
_AREA = "area under the curve as the most relevant regions are"
_GAIN = "how much {} than with regions in random order"
_RANDOM_WEIGHTS = "rank correlation with the maps of the model after parameter randomisation"
COLUMNS = {  # by the question that they answer, so that no table is too wide
    "is it where the thing is": (
        MapColumn("pointing game", _POINTING, "localisation", "pointing"),
        MapColumn("where needed", _NEEDED, "localisation", "needed"),
        MapColumn("relevance mass", "share of the map inside the mask", "localisation", "mass"),
        MapColumn("times share", _RATIO, "localisation", "ratio", number=".2f"),
        MapColumn("IoU", _IOU, "localisation", "iou"),
    ),
    "does the decision rest on it": (
        MapColumn("deletion", f"{_AREA} covered", "faithfulness", "deletion_area", low=True),
        MapColumn("gain", _GAIN.format("lower"), "faithfulness", "deletion_gain", number="+.3f"),
        MapColumn("insertion", f"{_AREA} uncovered", "faithfulness", "insertion_area"),
        MapColumn("gain", _GAIN.format("higher"), "faithfulness", "insertion_gain", number="+.3f"),
        MapColumn("random weights", _RANDOM_WEIGHTS, "randomised", "spearman", low=True),
    ),
}


class MethodTable(NamedTuple):
    """Methods side by side: the columns that were measured, and a row for each method; the best of a column is bold."""

    question: str
    columns: list[MapColumn]
    rows: dict[str, list[str | Cell]]


@dataclass(frozen=True)
class Audit:
    """All that was measured of a model's explanations.

    `maps` and `routes` are by what is explained ("concepts", "classes"), `maps` then by method. `mapped` of the `cases`
    were explained by maps. `masks` says what maps were compared with. `hidden` is what is still found with it painted
    over. `couplings` compares the network as it is with other couplings. `strict` is what a strict tree costs. `notes`
    say what to know, what could not be measured, and why.
    """

    model: str
    data: str
    cases: int
    patients: int
    mapped: int
    resamples: int
    seed: int
    masks: str
    maps: dict[About, dict[str, MapAudit]]
    hidden: dict[About, Inpainted]
    routes: dict[About, RouteAblation]
    residuals: Residuals | None
    couplings: dict[str, Comparison]
    concepts: ConceptAudit | None
    strict: StrictCost | None
    redundancy: list[LayerSimilarity]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def tables(self) -> list[Grid]:
        tables = []
        for about in self.maps:
            for part in self.methods(about):
                heads = [f"{column.title}{' (low)' if column.low else ''}" for column in part.columns]
                rows = [(name, *cells) for name, cells in part.rows.items()]
                title = f"maps of {about}, {self.mapped:,} cases: {part.question}"
                tables.append(Grid(title, ("method", *heads), rows))
        return [*tables, couplings_table("other couplings", self.couplings)] if self.couplings else tables

    def methods(self, about: About) -> list[MethodTable]:
        found = []
        for question, columns in COLUMNS.items():
            scores = {column: [column.score(each) for each in self.maps[about].values()] for column in columns}
            measured = {column: of_methods for column, of_methods in scores.items() if any(of_methods)}
            if measured:
                cells = [_cells(column, of_methods) for column, of_methods in measured.items()]
                rows = dict(zip(self.maps[about], map(list, zip(*cells, strict=True)), strict=True))
                found.append(MethodTable(question, list(measured), rows))
        return found

    @property
    def similarity_cases(self) -> int:
        return min(self.mapped, REDUNDANCY_CASES)

    def lines(self) -> list[str]:
        lines = []
        for about, hidden in self.hidden.items():
            what = "found in the cases that have them" if about == "concepts" else "right"
            for target in (hidden.overall, *hidden.targets):
                if target.shown.n:
                    name = about if target is hidden.overall else f"{about}, {target.name}"
                    lines.append(
                        f"{name} {what}: {_text(target.shown)}; painted over {_text(target.hidden)}, "
                        f"another place painted over {_text(target.elsewhere)}, n {target.shown.n:,}"
                    )
        lines += [self.residuals.sentence()] if self.residuals is not None else []
        for about, ablation in self.routes.items():
            lines.append(
                f"routes to {about} cut: {_text(ablation.gain, '+')} lower than with random ones, "
                f"{_text(ablation.gain_on_strongest, '+')} lower than with the strongest couplings"
            )
        lines += [] if self.concepts is None else _concept_lines(self.concepts)
        if self.strict is not None:
            lines.append(f"strict tree: {self.strict.sentence()}{'' if self.strict.adjusted else _UNADJUSTED}")
        return [*lines, *(f"note: {note}" for note in self.notes)]

    def curve_charts(self, about: About) -> list[LineChart]:
        found = {name: each.faithfulness for name, each in self.maps[about].items() if each.faithfulness is not None}
        if not found:
            return []
        first = next(iter(found.values()))
        labels = [f"{100 * share:.0f}" if i % 4 == 0 else "" for i, share in enumerate(first.covered)]
        charts = []
        for what, below in (("deletion", "% of regions covered"), ("insertion", "% of regions uncovered")):
            lines: dict[str, Sequence[float]] = {name: getattr(each, what) for name, each in found.items()}
            lines[_RANDOM] = getattr(first, f"random_{what}")
            charts.append(LineChart(what, lines, labels, below, _EFFECT, dashed=[_RANDOM]))
        return charts

    def randomisation_charts(self, about: About) -> list[LineChart]:
        """How alike maps stay as more and more stages of the network are made random."""
        found = {name: each.randomised for name, each in self.maps[about].items() if each.randomised is not None}
        if not found:
            return []
        stages = ["whole", *next(iter(found.values())).stages]
        labels = [str(i) if i % 2 == 0 else "" for i in range(len(stages))]
        charts = []
        for title, what in (("Rank correlation", "spearman"), ("Structural similarity", "ssim")):
            lines = {name: [1.0, *(x.value or 0.0 for x in getattr(each, what))] for name, each in found.items()}
            below = "stages made random, from the top"
            charts.append(LineChart(title, lines, labels, below, "likeness", low=-0.2))
        return charts

    def cut_chart(self, about: About) -> LineChart:
        cut = self.routes[about]
        lines = {"shown routes": cut.shown, "strongest couplings": cut.strongest, "random routes": cut.random}
        labels = [f"{100 * share:g}" for share in cut.shares]
        return LineChart("Routes cut", lines, labels, "% of the routes cut", _EFFECT, dashed=["random routes"])

    def correction_chart(self) -> LineChart | None:
        """Accuracy as more and more concepts are corrected; None for a model that does not decide by them alone."""
        if self.concepts is None or not self.concepts.interventions:
            return None
        names = {"uncertain": "uncertain ones first", "random": _RANDOM}
        lines = {names[curve.order]: curve.accuracy for curve in self.concepts.interventions}
        labels = [str(i) for i in range(len(self.concepts.interventions[0].accuracy))]
        low = min(0.5, *(min(values) for values in lines.values()))
        title = "Accuracy after corrections"
        return LineChart(title, lines, labels, "concepts corrected", "accuracy", low=low, dashed=[_RANDOM])


def couplings_table(title: str, compared: Mapping[str, Comparison]) -> Grid:
    """The scores of a network as it is and with other couplings; below each its difference and 95 % interval."""
    first = next(iter(compared.values()))
    metrics = [find_metric(name) for name in first.differences]
    rows: list[tuple[str | Cell, ...]] = [
        ("as they are", *(metric.number(first.differences[metric.name].first) for metric in metrics))
    ]
    for name, comparison in compared.items():
        cells = []
        for metric in metrics:
            each = comparison.differences[metric.name]
            between = metric.difference_interval(each.low, each.high)
            cells.append(Cell(metric.number(each.second), f"{metric.difference(each.difference)} ({between})"))
        rows.append((name, *cells))
    title = f"{title}: {first.n:,} images of {first.patients:,} patients"
    return Grid(title, ("couplings", *(metric.title for metric in metrics)), rows)


def _cells(column: MapColumn, scores: Sequence[Score | None]) -> list[str | Cell]:
    known = {i: each.value for i, each in enumerate(scores) if each is not None and each.value is not None}
    best = (min if column.low else max)(known, key=lambda i: known[i]) if len(known) > 1 else -1
    return ["" if each is None else column.cell(each, bold=i == best) for i, each in enumerate(scores)]


def _concept_lines(concepts: ConceptAudit) -> list[str]:
    lines = [f"{name.replace('_', ' ')}: {_text(score)}, n {score.n:,}" for name, score in concepts.overall.items()]
    if (each := concepts.shuffled) is not None:
        lines.append(
            f"accuracy {each.accuracy:.3f}, with others' concepts {each.shuffled:.3f} (chance {each.chance:.3f})"
        )
    if concepts.leakage is not None:
        lines.append(f"leakage: {concepts.leakage.accuracy.difference:+.3f} of accuracy")
    for curve in concepts.interventions:
        steps = ", ".join(f"{value:.3f}" for value in curve.accuracy)
        lines.append(f"accuracy after corrections, {curve.order}: {steps}")
    return lines


def _text(score: Score, sign: str = "") -> str:
    if score.value is None:
        return "-"
    return f"{score.value:{sign}.3f}" + ("" if score.low is None else f" ({score.low:.3f} to {score.high:.3f})")
