"""`METRICS`: every score by its name, and all scores as tables. JSON, terminal, pages and model card loop over it.

A new metric is a function and a row here; it may also be appended from outside.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from parsecaps.metrics.bootstrap import POSITIVE, Score
from parsecaps.metrics.calibration import brier, ece, ece_noise, nll
from parsecaps.metrics.classification import (
    Classification,
    auroc,
    count_classes,
    f1,
    macro,
    precision,
    recall,
    specificity,
)
from parsecaps.metrics.concepts import Attributes, Concepts, attribute_accuracy, attribute_f1, over_attributes
from parsecaps.metrics.conformal import LabelledSets
from parsecaps.metrics.metric import UNDEFINED, Metric, Part, mean_of
from parsecaps.metrics.patients import OtherViews, PatientAnswers
from parsecaps.types import Cell, Grid

if TYPE_CHECKING:
    from parsecaps.metrics.scores import Scores

_CONFUSION_WIDTH = 80  # of the names of the classes in a row

# fmt: off
METRICS: list[Metric] = [
    Metric("overall", "accuracy", "accuracy", Classification, mean_of("right"), share=True, short="accuracy"),
    Metric("overall", "balanced_accuracy", "balanced accuracy", Classification, macro(recall), share=True,
           means=count_classes, short="balanced\naccuracy"),
    Metric("overall", "patient_accuracy", "patients, all images read together", PatientAnswers,
           mean_of("right", of="first"), counted=lambda cases: [cases.first], share=True, short="by\npatient"),
    Metric("overall", "pooled_accuracy", "images, by the patient's answer", PatientAnswers,
           mean_of("right"), share=True),
    Metric("overall", "macro_precision", "precision, macro", Classification, macro(precision), share=True,
           means=count_classes),
    Metric("overall", "macro_recall", "recall, macro", Classification, macro(recall), share=True,
           means=count_classes),
    Metric("overall", "macro_f1", "F1, macro", Classification, macro(f1), means=count_classes),
    Metric("overall", "macro_specificity", "specificity, macro", Classification, macro(specificity), share=True,
           means=count_classes),
    Metric("overall", "macro_auroc", "AUROC, macro", Classification, macro(auroc), means=count_classes,
           short="AUROC\nmacro"),
    Metric("overall", "ece", "calibration error (ECE)", Classification, ece, noise=ece_noise,
           lower_is_better=True, short="ECE"),
    Metric("overall", "brier", "Brier score", Classification, brier, bounds=(0.0, 2.0), lower_is_better=True),
    Metric("overall", "nll", "NLL", Classification, nll, bounds=POSITIVE, lower_is_better=True),
    Metric("overall", "consistency", "same answer to changed views", OtherViews, mean_of("consistency"), share=True),
    Metric("by_class", "precision", "precision", Classification, precision,
           counted=lambda cases: [cases.answered], share=True),
    Metric("by_class", "recall", "recall", Classification, recall, counted=lambda cases: [cases.positive], share=True),
    Metric("by_class", "f1", "F1", Classification, f1, counted=lambda cases: [cases.positive | cases.answered]),
    Metric("by_class", "specificity", "specificity", Classification, specificity,
           counted=lambda cases: [cases.negative], share=True),
    Metric("by_class", "auroc", "AUROC", Classification, auroc,
           counted=lambda cases: [cases.known, cases.positive, cases.negative]),
    Metric("concepts", "mean_auroc", "concept AUROC, mean", Concepts, macro(auroc), short="concept\nAUROC"),
    Metric("concepts", "mean_f1", "concept F1, mean", Concepts, macro(f1)),
    Metric("concepts", "mean_attribute_f1", "attribute F1, mean of macro", Attributes, over_attributes(attribute_f1),
           short="attribute\nF1"),
    Metric("concepts", "mean_attribute_accuracy", "attribute accuracy, mean", Attributes,
           over_attributes(attribute_accuracy), share=True),
    Metric("concepts", "explanation_error_l2", "explanation error (L2)", Concepts, mean_of("distance"),
           bounds=POSITIVE, lower_is_better=True, short="L2\nerror"),
    Metric("concepts", "explanation_error_l2_squared", "explanation error (L2, squared)", Concepts,
           mean_of("squared_distance"), bounds=POSITIVE, lower_is_better=True),
    Metric("by_concept", "auroc", "AUROC", Concepts, auroc,
           counted=lambda cases: [cases.known, cases.positive, cases.negative]),
    Metric("by_concept", "f1", "F1", Concepts, f1, counted=lambda cases: [cases.known]),
    Metric("by_attribute", "attribute_f1", "F1, macro", Attributes, attribute_f1, counted=lambda cases: [cases.known]),
    Metric("by_attribute", "attribute_accuracy", "accuracy", Attributes, attribute_accuracy,
           counted=lambda cases: [cases.known], share=True),
    Metric("sets", "coverage", "sets with the truth", LabelledSets, mean_of("covers"), share=True),
    Metric("sets", "answered", "answered", LabelledSets, mean_of("single"), share=True),
    Metric("sets", "accuracy_answered", "right if answered", LabelledSets,
           mean_of("covers", of="single"), counted=lambda cases: [cases.single], share=True),
    Metric("sets", "mean_size", "classes in a set", LabelledSets, mean_of("size"), bounds=POSITIVE,
           lower_is_better=True),
]
# fmt: on


def find_metric(name: str) -> Metric:
    """The metric that is one number for the whole model by its name.

    >>> find_metric("accuracy").number(0.9534), find_metric("macro_auroc").number(0.9534)
    ('95.3 %', '0.953')
    """
    for metric in METRICS:
        if metric.name == name and metric.part in ("overall", "concepts"):
            return metric
    raise KeyError(f"there is no metric {name!r}; METRICS lists all")


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
        tables["by_attribute"] = _by(scores, "by_attribute", title, scores.by_attribute, "attribute_f1")
    if scores.by_concept:
        tables["by_concept"] = _by(scores, "by_concept", "by concept", scores.by_concept, "auroc")
    if scores.sets:
        sets = {f"{100 * each.risk:g} %": each.scores for each in scores.sets}
        tables["sets"] = _by(scores, "sets", "prediction sets, by the risk that they leave out the truth", sets)
    return tables


def _single(scores: "Scores", metrics: Sequence[Metric]) -> Grid:
    found = [(metric, scores[metric.name]) for metric in metrics]
    rows = [(metric.title, metric.number(each.value), metric.interval(each), f"{each.n:,}") for metric, each in found]
    return Grid(scores.counts, ("score", "value", "95 % interval", "n"), rows)


def _folds(scores: "Scores") -> Grid:
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
    pooled = (metric.number(scores[metric.name].value) for metric in metrics)
    rows += [("mean", "", *means), ("pooled", f"{scores.images:,}", *pooled)]
    return Grid("by fold", ("fold", "n", *(metric.short for metric in metrics)), rows)


def _by(scores: "Scores", part: Part, title: str, rows: Mapping[str, Mapping[str, Score]], n_of: str = "") -> Grid:
    """A row for each class, concept, attribute or risk; its n is that of the metric `n_of`."""
    metrics = scores.metrics(part)
    heads = ["risk" if part == "sets" else part.removeprefix("by_")]
    heads += ["present"] * (part == "by_concept") + ["n"] * bool(n_of) + [metric.title for metric in metrics]
    cells: list[list[str | Cell]] = []
    for name, by_metric in rows.items():
        present = [f"{scores.present[name]:,}"] if part == "by_concept" else []
        n = [f"{by_metric[n_of].n:,}"] if n_of else []
        cells.append([name, *present, *n, *(metric.cell(by_metric[metric.name]) for metric in metrics)])
    return Grid(title, heads, cells, stacked=part in ("by_class", "sets"))


def _confusion(scores: "Scores") -> Grid:
    """The truth in rows; where the names are too long for columns, numbers stand for them."""
    names: Sequence[str] = scores.classes
    heads = names
    if sum(len(name) + 3 for name in names) > _CONFUSION_WIDTH:
        heads = [str(i) for i in range(1, len(names) + 1)]
        names = [f"{i} {name}" for i, name in zip(heads, names, strict=True)]
    rows = [(name, *(f"{count:,}" for count in row)) for name, row in zip(names, scores.confusion, strict=True)]
    return Grid("confusion matrix", ("truth, and named as", *heads), rows)
