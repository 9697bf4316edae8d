"""How good a model is: every score with the number of images behind it and a 95 % interval over patients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from statistics import mean, stdev
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, model_serializer, model_validator

from parsecaps.files.untrusted import checked
from parsecaps.metrics.bootstrap import Score, few_patients
from parsecaps.metrics.calibration import ReliabilityBin, reliability_bins
from parsecaps.metrics.classification import Classification, confusion_matrix, roc_curve
from parsecaps.metrics.concepts import Attributes, Concepts
from parsecaps.metrics.conformal import LabelledSets, Sets
from parsecaps.metrics.metric import Metric, Part, ScoredCases, measure
from parsecaps.metrics.patients import OtherViews, PatientAnswers, PatientErrors, patient_errors
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.registry import METRICS, score_tables
from parsecaps.types import Grid


@dataclass(frozen=True)
class SetScores:
    """What prediction sets do at one risk, over images with known labels: part `sets` of `METRICS`."""

    risk: float
    scores: dict[str, Score]
    notes: list[str]

    def __getitem__(self, name: str) -> Score:
        return self.scores[name]

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        """In JSON the scores stand beside the risk."""
        return {"risk": self.risk, **{name: asdict(each) for name, each in self.scores.items()}, "notes": self.notes}

    @model_validator(mode="wrap")
    @classmethod
    def _nested(cls, stored: Any, make: Callable[[Any], Self]) -> Self:
        if not isinstance(stored, Mapping):
            return make(stored)
        own = {name: stored[name] for name in ("risk", "notes") if name in stored}
        return make({**own, "scores": {name: each for name, each in stored.items() if name not in own}})


@dataclass(frozen=True)
class FoldScores:
    """One fold: the images and patients it tests, its temperature, and the scores that are single numbers."""

    name: str
    images: int
    patients: int
    temperature: float
    single: dict[str, Score]


class OverFolds(NamedTuple):
    """Mean and standard deviation (n - 1) of a score over the `folds` where it is defined."""

    mean: float
    std: float | None
    folds: int


@dataclass(frozen=True, repr=False)
class Scores:
    """All scores of one model on one set of cases; `scores["accuracy"]` finds any of those that are single numbers.

    `METRICS` lists the scores of each part. `overall` and `concepts` are single numbers, `by_class` has those of each
    class, one against the rest. patient_accuracy and pooled_accuracy need patients whose images are of one class,
    consistency several views of each image. A class without images has no recall, no AUROC, and no part in macro means.

    `confusion` has the truth in rows, `roc` the corners of each class's curve, `present` how many images have a
    concept. `cases` names what was scored. `sets` is about prediction sets, risk by risk. `folds` are those of a
    cross-validation, pooled in all the rest. `patient_errors` says whose images are wrong, if some patient has several.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    classes: tuple[str, ...]
    concept_names: tuple[str, ...]
    images: int
    labelled: int
    patients: int
    temperature: float
    resamples: int
    seed: int
    overall: dict[str, Score]
    by_class: dict[str, dict[str, Score]]
    confusion: list[list[int]]
    reliability: list[ReliabilityBin]
    roc: dict[str, list[tuple[float, float]]]
    concepts: dict[str, Score]
    by_concept: dict[str, dict[str, Score]]
    present: dict[str, int]
    notes: list[str]
    cases: str = ""
    sets: list[SetScores] = field(default_factory=list)
    folds: list[FoldScores] = field(default_factory=list)
    by_attribute: dict[str, dict[str, Score]] = field(default_factory=dict)
    patient_errors: Annotated[PatientErrors | None, Field(alias="misread")] = None

    def __repr__(self) -> str:
        single = self.single
        lines = [
            f"  {each.title:<24} {each.with_interval(single[each.name])}, n = {single[each.name].n:,}"
            for each in self.main_metrics
        ]
        return "\n".join([self.counts, *lines, *(f"  note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    def __getitem__(self, name: str) -> Score:
        return self.single[name]

    @property
    def single(self) -> dict[str, Score]:
        """The scores that are one number for the whole model: `overall` and `concepts`."""
        return {**self.overall, **self.concepts}

    def metrics(self, *parts: Part) -> list[Metric]:
        """The metrics of these parts that there are scores of."""
        there = {
            "overall": [self.overall],
            "concepts": [self.concepts],
            "by_class": self.by_class.values(),
            "by_concept": self.by_concept.values(),
            "by_attribute": self.by_attribute.values(),
            "sets": [each.scores for each in self.sets],
        }
        return [each for each in METRICS if each.part in parts and any(each.name in some for some in there[each.part])]

    @property
    def single_metrics(self) -> list[Metric]:
        return self.metrics("overall", "concepts")

    @property
    def main_metrics(self) -> list[Metric]:
        """The few of them to begin with."""
        return [metric for metric in self.single_metrics if metric.short]

    @property
    def over_folds(self) -> dict[str, OverFolds]:
        """Mean and standard deviation over folds; no standard error, as the folds share patients."""
        found = {}
        for key in dict.fromkeys(key for fold in self.folds for key in fold.single):
            scores = [fold.single[key].value for fold in self.folds if key in fold.single]
            if values := [value for value in scores if value is not None]:
                found[key] = OverFolds(mean(values), stdev(values) if len(values) > 1 else None, len(values))
        return found

    @property
    def counts(self) -> str:
        cases = f"{self.cases}: " if self.cases else ""
        labelled = "" if self.labelled == self.images else f", {self.labelled:,} with a known label"
        return f"{cases}{self.images:,} images of {self.patients:,} patients{labelled}"

    def tables(self, *, short: bool = False) -> dict[str, Grid]:
        return score_tables(self, short=short)

    def lines(self) -> list[str]:
        fitted = "a temperature for each fold" if self.folds else f"temperature {self.temperature:.3g}"
        intervals = f"95 % intervals by {self.resamples:,} resamples of {self.patients:,} patients; {fitted}"
        return [intervals, *(f"note: {note}" for note in self.notes)]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict; `over_folds` is computed from `folds`, for readers of the file."""
        # mode="json" would corrupt class names that are not valid UTF-8
        stored: dict[str, Any] = TypeAdapter(Scores).dump_python(self, by_alias=True)
        return {**stored, "over_folds": {key: each._asdict() for key, each in self.over_folds.items()}}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Scores":
        own = {name: value for name, value in stored.items() if name != "over_folds"}
        return checked(cls, own, "these are not scores of this version", "evaluate again")

    @model_validator(mode="after")
    def _check_whole(self) -> Self:
        """Refuse scores of which some are missing: those of a class, or those that every page shows."""
        size = len(self.classes)
        if self.by_class.keys() != set(self.classes) or [len(row) for row in self.confusion] != [size] * size:
            raise ValueError("by_class or confusion does not fit the classes")
        sets = {str(each.risk): each.scores for each in self.sets}
        for rows in (self.by_class, self.by_concept, self.by_attribute, sets):
            if len({frozenset(each) for each in rows.values()}) > 1:
                raise ValueError("some classes, concepts or risks lack a score that others have")
        if not all({"recall", "auroc"} <= each.keys() for each in self.by_class.values()):
            raise ValueError("recall or auroc is missing")
        if not {"accuracy", "ece"} <= self.overall.keys():
            raise ValueError("accuracy or ece is missing")
        return self


def score(predictions: Predictions, *, temperature: float = 1.0, resamples: int = 1000, seed: int = 0) -> Scores:
    """Score predictions, after dividing their logits by `temperature`; unknown labels and concepts are left out.

    Intervals come from bootstrap resamples of the patients, or of the images without patients (`bootstrap.interval`).
    """
    predictions = predictions.tempered(temperature)
    labelled = Classification.of(predictions)
    concepts, attributes = Concepts.of(predictions), Attributes.of(predictions)
    found: dict[Metric, list[Score]] = {}
    for cases in (labelled, PatientAnswers.of(predictions), OtherViews.of(predictions), concepts, attributes):
        if cases is not None:
            found |= _measure(cases, resamples, seed)

    def by_name(part: Part, names: Sequence[str]) -> dict[str, dict[str, Score]]:
        rows = {metric.name: found[metric] for metric in METRICS if metric.part == part and metric in found}
        return {name: {key: scores[i] for key, scores in rows.items()} for i, name in enumerate(names)}

    concept_names = () if concepts is None else predictions.concept_names
    curves = {
        name: roc_curve(labelled.scores[:, k], labelled.positive[:, k]) for k, name in enumerate(predictions.classes)
    }
    return Scores(
        classes=predictions.classes,
        concept_names=concept_names,
        images=len(predictions),
        labelled=len(labelled),
        patients=len(np.unique(predictions.groups())),
        temperature=temperature,
        resamples=resamples,
        seed=seed,
        overall=by_name("overall", ["all"])["all"],
        by_class=by_name("by_class", predictions.classes),
        confusion=confusion_matrix(labelled.label, labelled.named, len(predictions.classes)).tolist(),
        reliability=reliability_bins(labelled.probabilities, labelled.label),
        roc={name: curve for name, curve in curves.items() if curve is not None},
        concepts=by_name("concepts", ["all"])["all"],
        by_concept=by_name("by_concept", concept_names),
        present={} if concepts is None else dict(zip(concept_names, concepts.positive.sum(0).tolist(), strict=True)),
        notes=_notes(predictions),
        by_attribute={} if attributes is None else by_name("by_attribute", attributes.names),
        patient_errors=patient_errors(predictions),
    )


def score_sets(
    predictions: Predictions, sets: Mapping[float, Sets], *, resamples: int = 1000, seed: int = 0
) -> list[SetScores]:
    """Measure the prediction sets of each risk; intervals as those of all other scores, by resampling patients."""
    rows = np.flatnonzero(predictions.label >= 0)
    found = []
    for risk, each in sets.items():
        cases = LabelledSets(each.inside[rows], predictions.label[rows]).of_patients(predictions.groups(), rows)
        scores = _measure(cases, resamples, seed)
        found.append(SetScores(risk, {metric.name: score for metric, (score,) in scores.items()}, each.notes))
    return found


def _measure(cases: ScoredCases, resamples: int, seed: int) -> dict[Metric, list[Score]]:
    metrics = [metric for metric in METRICS if metric.cases is type(cases)]
    return measure(cases, metrics, resamples=resamples, seed=seed)


def _notes(predictions: Predictions) -> list[str]:
    notes = []
    known = predictions.label >= 0
    label = predictions.label[known]
    if not known.any():
        notes.append("no label is known: there are no scores of classes")
    elif not known.all():
        notes.append(f"{int((~known).sum()):,} of {len(known):,} images have no known label and are left out")
    missing = [name for k, name in enumerate(predictions.classes) if k not in label]
    if missing and known.any():
        notes.append(f"no image of {', '.join(missing)}: no recall and no AUROC, and left out of macro means")
    patients = len(np.unique(predictions.groups()[known]))
    if patients == 1:
        notes.append("all labelled images are of one patient: there are no intervals")
    notes += few_patients(patients)
    if known.any() and (predictions.logits[known].argmax(1) == label).all():
        notes.append(
            f"no mistake in {int(known.sum()):,} images of {patients:,} patients: with 95 % confidence up to "
            f"{100 * (1 - 0.05 ** (1 / patients)):.1f} % of patients may still have one"
        )
    return notes
