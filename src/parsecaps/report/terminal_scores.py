"""What `parsecaps evaluate` prints: scores with their intervals, and comparisons."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from parsecaps.metrics import Comparison, Ensemble, Metric, Score, Scores, find_metric
from parsecaps.metrics.metric import UNDEFINED, Part
from parsecaps.metrics.patients import PatientErrors
from parsecaps.report.scores_page import errors_by_patient, p_equals, p_value
from parsecaps.report.terminal import add_row, plain_table

if TYPE_CHECKING:
    from rich.table import Table

_CONFUSION_WIDTH = 80  # of the names of the classes in a row


def score_tables(scores: Scores) -> "Iterator[Table]":
    """All scores of one model: by fold, overall, by class, confusion, errors, attributes, concepts, prediction sets."""
    if scores.folds:
        yield folds_table(scores)
    yield _single_table(scores, scores.single_metrics)
    yield _table_by(scores, "by_class", "by class, one against the rest", scores.by_class, "recall", two_lines=True)
    yield _confusion_table(scores)
    if scores.patient_errors is not None and scores.patient_errors.wrong:
        yield _errors_table(errors_by_patient(scores.patient_errors), scores.patient_errors)
    if scores.by_attribute:
        title = "by attribute, each a choice of one value"
        yield _table_by(scores, "by_attribute", title, scores.by_attribute, "attribute_f1")
    if scores.by_concept:
        yield _table_by(scores, "by_concept", "by concept", scores.by_concept, "auroc")
    if scores.sets:
        metrics = scores.metrics("sets")
        title = "prediction sets, by the risk that they leave out the truth"
        sets = plain_table(title, "risk", *(metric.title for metric in metrics))
        for each in scores.sets:
            add_row(sets, f"{100 * each.risk:g} %", *(_two_lines(metric, each[metric.name]) for metric in metrics))
        yield sets


def short_table(scores: Scores) -> "Table":
    """The few scores to begin with."""
    return _single_table(scores, scores.main_metrics)


def folds_table(scores: Scores) -> "Table":
    """A row per fold, their mean and standard deviation, and the pooled scores."""
    metrics = scores.main_metrics
    table = plain_table("by fold", "fold", "n", *(metric.short for metric in metrics))
    for fold in scores.folds:
        cells = (metric.number(fold.single[metric.name].value) for metric in metrics)
        add_row(table, fold.name, f"{fold.images:,}", *cells)
    over = scores.over_folds
    add_row(
        table,
        "mean",
        "",
        *(
            metric.with_deviation(over[metric.name].mean, over[metric.name].std).replace(" ± ", "\n± ")
            if metric.name in over
            else UNDEFINED
            for metric in metrics
        ),
    )
    add_row(table, "pooled", f"{scores.images:,}", *(metric.number(scores[metric.name].value) for metric in metrics))
    return table


def score_lines(scores: Scores) -> Iterator[str]:
    """How the numbers came about, and what to know before believing them."""
    fitted = "a temperature for each fold" if scores.folds else f"temperature {scores.temperature:.3g}"
    yield f"95 % intervals by {scores.resamples:,} resamples of {scores.patients:,} patients; {fitted}"
    for note in scores.notes:
        yield f"note: {note}"


def set_lines(scores: Scores) -> Iterator[str]:
    """Why prediction sets abstain from everything, where they do."""
    for each in scores.sets:
        yield from (f"note: {note}" for note in each.notes)


def comparison_table(comparison: Comparison, first: str, second: str) -> "Table":
    """The differences, second minus first."""
    title = f"{second} against {first}: {comparison.n:,} images of {comparison.patients:,} patients"
    table = plain_table(title, "score", first, second, "difference", "95 % interval", "p")
    for name, each in comparison.differences.items():
        metric = find_metric(name)
        values = (metric.number(each.first), metric.number(each.second), metric.difference(each.difference))
        add_row(table, metric.title, *values, metric.difference_interval(each.low, each.high), p_value(each.p_value))
    return table


def comparison_lines(comparison: Comparison, first: str, second: str) -> Iterator[str]:
    """McNemar's test in words."""
    yield (
        f"only {first} is right on {comparison.only_first:,} images, only {second} on {comparison.only_second:,}; "
        f"McNemar, exact: {p_equals(comparison.mcnemar_p)}"
    )


def ensemble_tables(ensemble: Ensemble) -> "Iterator[Table]":
    """The mean of all models, and whose images all of them get wrong."""
    table = plain_table(f"ensemble, the mean of the {ensemble.models} models: {ensemble.n:,} images", "score", "value")
    add_row(table, "accuracy, mean of each alone", find_metric("accuracy").number(ensemble.member_accuracy))
    for name, each in ensemble.scores.items():
        metric = find_metric(name)
        add_row(table, f"{metric.title} of the mean probability", metric.with_interval(each))
    add_row(table, "wrong by at least one model", f"{ensemble.any_wrong:,}")
    add_row(table, "wrong by all", f"{ensemble.all_wrong:,}")
    yield table
    if ensemble.patient_errors is not None and ensemble.patient_errors.wrong:
        yield _errors_table(f"by all models, {errors_by_patient(ensemble.patient_errors)}", ensemble.patient_errors)


def _errors_table(title: str, errors: PatientErrors) -> "Table":
    table = plain_table(title, "patient", "truth", "named", "wrong", "images")
    for each in errors.worst:
        add_row(table, each.patient, each.truth, each.named, f"{each.wrong:,}", f"{each.images:,}")
    return table


def _single_table(scores: Scores, metrics: Sequence[Metric]) -> "Table":
    table = plain_table(scores.counts, "score", "value", "95 % interval", "n")
    for metric in metrics:
        each = scores[metric.name]
        add_row(table, metric.title, metric.number(each.value), metric.interval(each), f"{each.n:,}")
    return table


def _table_by(
    scores: Scores,
    part: Part,
    title: str,
    rows: Mapping[str, Mapping[str, Score]],
    n_of: str,
    *,
    two_lines: bool = False,
) -> "Table":
    """A row for each class, concept or attribute; its n is that of the metric `n_of`."""
    metrics, of_concepts = scores.metrics(part), part == "by_concept"
    heads = (part.removeprefix("by_"), *(["present"] if of_concepts else []), "n")
    table = plain_table(title, *heads, *(metric.title for metric in metrics))
    for name, by_metric in rows.items():
        present = [f"{scores.present[name]:,}"] if of_concepts else []
        cells = [
            _two_lines(metric, by_metric[metric.name]) if two_lines else metric.with_interval(by_metric[metric.name])
            for metric in metrics
        ]
        add_row(table, name, *present, f"{by_metric[n_of].n:,}", *cells)
    return table


def _confusion_table(scores: Scores) -> "Table":
    """The truth in rows; where the names are too long for columns, numbers stand for them."""
    names = scores.classes
    short = sum(len(name) + 3 for name in names) <= _CONFUSION_WIDTH
    rows = names if short else [f"{i} {name}" for i, name in enumerate(names, 1)]
    table = plain_table(
        "confusion matrix", "truth, and named as", *(names if short else map(str, range(1, len(names) + 1)))
    )
    for name, row in zip(rows, scores.confusion, strict=True):
        add_row(table, name, *(f"{count:,}" for count in row))
    return table


def _two_lines(metric: Metric, score: Score) -> str:
    return f"{metric.number(score.value)}\n{metric.interval(score)}"
