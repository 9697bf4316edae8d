"""Scores as tables, the same in a terminal, on a page and in a model card."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parsecaps.metrics.bootstrap import Score
from parsecaps.metrics.metric import UNDEFINED, Metric, Part
from parsecaps.types import Cell, Grid

if TYPE_CHECKING:
    from parsecaps.metrics.scores import Scores

_CONFUSION_WIDTH = 80  # of the names of the classes in a row


def score_tables(scores: "Scores", *, short: bool = False) -> dict[str, Grid]:
    """All scores: by fold, overall, by class, confusion, errors, attributes, concepts, prediction sets."""
    tables = {"folds": _folds(scores)} if scores.folds else {}
    if short:
        return {**tables, "single": _single(scores, scores.main_metrics)}
    tables["single"] = _single(scores, scores.single_metrics)
    tables["by_class"] = _by(scores, "by_class", "by class, one against the rest", scores.by_class, "recall")
    tables["confusion"] = _confusion(scores)
    if scores.patient_errors is not None and scores.patient_errors.wrong:
        tables["errors"] = scores.patient_errors.table()
    if scores.by_attribute:
        title = "by attribute, each a choice of one value"
        table = _by(scores, "by_attribute", title, scores.by_attribute, "attribute_f1")
        tables["by_attribute"] = table._replace(stacked=False)
    if scores.by_concept:
        table = _by(scores, "by_concept", "by concept", scores.by_concept, "auroc")
        tables["by_concept"] = table._replace(stacked=False)
    return {**tables, "sets": _sets(scores)} if scores.sets else tables


def _single(scores: "Scores", metrics: Sequence[Metric]) -> Grid:
    """The scores that are one number for the whole model, a row for each."""
    found = [(metric, scores[metric.name]) for metric in metrics]
    rows = [(metric.title, metric.number(each.value), metric.interval(each), f"{each.n:,}") for metric, each in found]
    return Grid(scores.counts, ("score", "value", "95 % interval", "n"), rows)


def _folds(scores: "Scores") -> Grid:
    """A row per fold, their mean and standard deviation, and the pooled scores."""
    metrics, over = scores.main_metrics, scores.over_folds
    rows: list[Sequence[str | Cell]] = [
        (fold.name, f"{fold.images:,}", *(metric.number(fold.single[metric.name].value) for metric in metrics))
        for fold in scores.folds
    ]
    means: list[str | Cell] = []
    for metric in metrics:
        found = over.get(metric.name)
        text, _, deviation = ("" if found is None else metric.with_deviation(found.mean, found.std)).partition(" ± ")
        means.append(Cell(text, f"± {deviation}") if deviation else text or UNDEFINED)
    rows.append(("mean", "", *means))
    rows.append(("pooled", f"{scores.images:,}", *(metric.number(scores[metric.name].value) for metric in metrics)))
    return Grid("by fold", ("fold", "n", *(metric.short for metric in metrics)), rows)


def _sets(scores: "Scores") -> Grid:
    """A row for each risk of prediction sets."""
    metrics = scores.metrics("sets")
    return Grid(
        "prediction sets, by the risk that they leave out the truth",
        ("risk", *(metric.title for metric in metrics)),
        [(f"{100 * each.risk:g} %", *(metric.cell(each[metric.name]) for metric in metrics)) for each in scores.sets],
    )


def _by(scores: "Scores", part: Part, title: str, rows: Mapping[str, Mapping[str, Score]], n_of: str) -> Grid:
    """A row for each class, concept or attribute; its n is that of the metric `n_of`."""
    metrics, of_concepts = scores.metrics(part), part == "by_concept"
    heads = (part.removeprefix("by_"), *(["present"] if of_concepts else []), "n")
    cells: list[tuple[str | Cell, ...]] = [
        (
            name,
            *([f"{scores.present[name]:,}"] if of_concepts else []),
            f"{by_metric[n_of].n:,}",
            *(metric.cell(by_metric[metric.name]) for metric in metrics),
        )
        for name, by_metric in rows.items()
    ]
    return Grid(title, (*heads, *(metric.title for metric in metrics)), cells)


def _confusion(scores: "Scores") -> Grid:
    """The truth in rows; where the names are too long for columns, numbers stand for them."""
    names: Sequence[str] = scores.classes
    heads = names
    if sum(len(name) + 3 for name in names) > _CONFUSION_WIDTH:
        heads = [str(i) for i in range(1, len(names) + 1)]
        names = [f"{i} {name}" for i, name in zip(heads, names, strict=True)]
    rows = [(name, *(f"{count:,}" for count in row)) for name, row in zip(names, scores.confusion, strict=True)]
    return Grid("confusion matrix", ("truth, and named as", *heads), rows)
