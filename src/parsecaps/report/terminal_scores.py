"""What `parsecaps evaluate` prints: scores with their intervals, and comparisons."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from parsecaps.metrics.attributes import PER_ATTRIBUTE
from parsecaps.metrics.comparison import Comparison
from parsecaps.metrics.conformal_scores import KEYS
from parsecaps.metrics.ensemble import Together
from parsecaps.metrics.patient_errors import Misread
from parsecaps.metrics.score import Score
from parsecaps.metrics.scores import PER_CLASS, PER_CONCEPT, Scores
from parsecaps.report.score_text import (
    MAIN,
    TITLES,
    UNDEFINED,
    difference,
    difference_interval,
    equals,
    interval,
    number,
    p_value,
    spread,
    whose_errors,
    with_interval,
)
from parsecaps.report.terminal import plain_table

if TYPE_CHECKING:
    from rich.table import Table

_SHORT = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced\naccuracy",
    "patient_accuracy": "by\npatient",
    "macro_auroc": "AUROC\nmacro",
    "ece": "ECE",
    "mean_auroc": "concept\nAUROC",
    "mean_attribute_f1": "attribute\nF1",
    "explanation_error_l2": "L2\nerror",
}
_CONFUSION_WIDTH = 80  # of the names of the classes in a row


def score_tables(scores: Scores) -> "Iterator[Table]":
    """All scores of one model: by fold, overall, by class, confusion, errors, attributes, concepts, prediction sets."""
    if scores.folds:
        yield folds_table(scores)
    yield _single_table(_plain(scores.counts), scores.single)
    classes = plain_table("by class, one against the rest", "class", "n", *_titles(PER_CLASS))
    for name, by_key in scores.by_class.items():
        classes.add_row(_plain(name), f"{by_key['recall'].n:,}", *(_two_lines(key, by_key[key]) for key in PER_CLASS))
    yield classes
    yield _confusion_table(scores)
    if scores.misread is not None and scores.misread.wrong:
        yield _misread_table(whose_errors(scores.misread), scores.misread)
    if scores.by_attribute:
        attributes = plain_table("by attribute, each a choice of one value", "attribute", "n", *_titles(PER_ATTRIBUTE))
        for name, by_key in scores.by_attribute.items():
            cells = (with_interval(key, by_key[key]) for key in PER_ATTRIBUTE)
            attributes.add_row(_plain(name), f"{by_key['attribute_f1'].n:,}", *cells)
        yield attributes
    if scores.by_concept:
        concepts = plain_table("by concept", "concept", "present", "n", *_titles(PER_CONCEPT))
        for name, by_key in scores.by_concept.items():
            cells = (with_interval(key, by_key[key]) for key in PER_CONCEPT)
            concepts.add_row(_plain(name), f"{scores.present[name]:,}", f"{by_key['auroc'].n:,}", *cells)
        yield concepts
    if scores.sets:
        sets = plain_table(
            "prediction sets, by the risk that they leave out the truth", "risk", *(TITLES[key] for key in KEYS)
        )
        for each in scores.sets:
            sets.add_row(f"{100 * each.risk:g} %", *(_two_lines(key, getattr(each, key)) for key in KEYS))
        yield sets


def short_table(scores: Scores) -> "Table":
    """The few scores to begin with."""
    return _single_table(_plain(scores.counts), {key: scores[key] for key in MAIN if key in scores.single})


def folds_table(scores: Scores) -> "Table":
    """A row per fold, their mean and standard deviation, and the pooled scores."""
    keys = [key for key in MAIN if key in scores.single]
    table = plain_table("by fold", "fold", "n", *(_SHORT[key] for key in keys))
    for fold in scores.folds:
        table.add_row(_plain(fold.name), f"{fold.images:,}", *(number(key, fold.single[key].value) for key in keys))
    means = scores.over_folds
    cells = (spread(key, means[key]).replace(" ± ", "\n± ") if key in means else UNDEFINED for key in keys)
    table.add_row("mean", "", *cells)
    table.add_row("pooled", f"{scores.images:,}", *(number(key, scores[key].value) for key in keys))
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


def side_by_side_table(models: Mapping[str, Scores]) -> "Table":
    """The single numbers of several models, a column each."""
    table = plain_table("scores with 95 % intervals", "score", *map(_plain, models))
    counts = (f"{scores.labelled:,}, {scores.patients:,}" for scores in models.values())
    table.add_row("labelled images, patients", *counts)
    found = [scores.single for scores in models.values()]
    for key in dict.fromkeys(key for each in found for key in each):
        cells = (with_interval(key, each[key]) if key in each else "" for each in found)
        table.add_row(TITLES[key], *cells)
    return table


def comparison_table(comparison: Comparison, first: str, second: str) -> "Table":
    """The differences, second minus first."""
    first, second = _plain(first), _plain(second)
    title = f"{second} against {first}: {comparison.n:,} images of {comparison.patients:,} patients"
    table = plain_table(title, "score", first, second, "difference", "95 % interval", "p")
    for key, each in comparison.differences.items():
        values = (number(key, each.first), number(key, each.second), difference(key, each.difference))
        table.add_row(TITLES[key], *values, difference_interval(key, each), p_value(each.p_value))
    return table


def comparison_lines(comparison: Comparison, first: str, second: str) -> Iterator[str]:
    """McNemar's test in words."""
    yield (
        f"only {first} is right on {comparison.only_first:,} images, only {second} on {comparison.only_second:,}; "
        f"McNemar, exact: p {equals(comparison.mcnemar_p)}"
    )


def together_tables(together: Together) -> "Iterator[Table]":
    """The mean of all models, and whose images all of them get wrong."""
    table = plain_table(f"the mean of the {together.models} models: {together.n:,} images", "score", "value")
    table.add_row("accuracy, mean of each alone", number("accuracy", together.alone))
    for key, each in together.scores.items():
        table.add_row(f"{TITLES[key]} of the mean probability", with_interval(key, each))
    table.add_row("wrong by at least one model", f"{together.any_wrong:,}")
    table.add_row("wrong by all", f"{together.all_wrong:,}")
    yield table
    if together.misread is not None and together.misread.wrong:
        yield _misread_table(f"by all models, {whose_errors(together.misread)}", together.misread)


def _misread_table(title: str, misread: Misread) -> "Table":
    table = plain_table(title, "patient", "truth", "named", "wrong", "images")
    for each in misread.worst:
        names = (_plain(name) for name in (each.patient, each.truth, each.named))
        table.add_row(*names, f"{each.wrong:,}", f"{each.images:,}")
    return table


def _single_table(title: str, scores: Mapping[str, Score]) -> "Table":
    table = plain_table(title, "score", "value", "95 % interval", "n")
    for key, each in scores.items():
        table.add_row(TITLES[key], number(key, each.value), interval(key, each), f"{each.n:,}")
    return table


def _confusion_table(scores: Scores) -> "Table":
    """The truth in rows; where the names are too long for columns, numbers stand for them."""
    names = [_plain(name) for name in scores.classes]
    short = sum(len(name) + 3 for name in names) <= _CONFUSION_WIDTH
    rows = names if short else [f"{i} {name}" for i, name in enumerate(names, 1)]
    table = plain_table(
        "confusion matrix", "truth, and named as", *(names if short else map(str, range(1, len(names) + 1)))
    )
    for name, row in zip(rows, scores.confusion, strict=True):
        table.add_row(name, *(f"{count:,}" for count in row))
    return table


def _titles(keys: tuple[str, ...]) -> list[str]:
    return [TITLES[key] for key in keys]


def _two_lines(key: str, score: Score) -> str:
    return f"{number(key, score.value)}\n{interval(key, score)}"


def _plain(name: str) -> str:
    """A name that someone else chose, brackets and all, as it is and not as markup."""
    from rich.markup import escape

    return escape(name)
