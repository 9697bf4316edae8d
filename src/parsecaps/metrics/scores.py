"""How good a model is: every score with the number of images behind it and a 95 % interval over patients."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from parsecaps.metrics.attributes import (
    PER_ATTRIBUTE,
    Attributes,
    WeightedAttributeScores,
    attribute_scores,
    find_attributes,
    known_value,
)
from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.by_patient import scores_by_patient
from parsecaps.metrics.calibration import ReliabilityBin, reliability_bins
from parsecaps.metrics.conformal_scores import SetScores
from parsecaps.metrics.folds import FoldScores, OverFolds, over_folds
from parsecaps.metrics.means import means
from parsecaps.metrics.patient_errors import Misread, misread
from parsecaps.metrics.score import Estimates, Score
from parsecaps.metrics.weighted import WeightedClassScores, WeightedConceptScores
from parsecaps.prediction.predictions import Predictions
from parsecaps.report import score_text

PER_CLASS = ("precision", "recall", "f1", "specificity", "auroc")
PER_CONCEPT = ("auroc", "f1")


@dataclass(frozen=True, repr=False)
class Scores:
    """All scores of one model on one set of cases; `scores["accuracy"]` finds any of those that are single numbers.

    `overall` has accuracy, balanced_accuracy, macro_precision, macro_recall, macro_f1, macro_specificity, macro_auroc,
    ece, brier and nll, and steadiness where several views of each image were looked at: the share of the changed ones
    that get the answer of the image itself, right or wrong; patient_accuracy and pooled_accuracy where the images of a
    patient are of one class, and so can be read together (`evaluation.by_patient`). `by_class` has the five of each
    class, one against the rest.
    `concepts` has mean_auroc, mean_f1, explanation_error_l2 (mean over images of the L2 distance between presence and
    truth, over the known concepts) and explanation_error_l2_squared (mean of its square); it is empty without concepts.
    `by_concept` has auroc and f1 (seen: presence above 0.5), and `present` how many images have each concept. Where
    concepts are the values of attributes (`evaluation.attributes`), `concepts` has mean_attribute_f1 and
    mean_attribute_accuracy too, and `by_attribute` the macro F1 and the accuracy of each.

    A class that is absent from the truth has no recall and no AUROC, and takes no part in macro means. `confusion` has
    the truth in rows. `roc` has the corners of the curve of each class that has one.

    `cases` says in a few words what was scored. `sets` has what prediction sets do, risk by risk, where they could be
    calibrated. `folds` has the folds of a cross-validation, which are pooled in all the rest. `misread` says whose
    images are wrong, where some patient has several.
    """

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
    misread: Misread | None = None

    def __repr__(self) -> str:
        return "\n".join(score_text.summary(self.counts, self.single, self.notes))

    def _repr_html_(self) -> str:
        return score_text.summary_html(self.counts, self.single, self.notes)

    def __getitem__(self, name: str) -> Score:
        return self.single[name]

    @property
    def single(self) -> dict[str, Score]:
        """The scores that are one number for the whole model: `overall` and `concepts`."""
        return {**self.overall, **self.concepts}

    @property
    def over_folds(self) -> dict[str, OverFolds]:
        """Mean and standard deviation of the single numbers over the folds; empty without folds."""
        return over_folds(self.folds)

    @property
    def counts(self) -> str:
        """What was scored, and how much of it."""
        cases = f"{self.cases}: " if self.cases else ""
        labelled = "" if self.labelled == self.images else f", {self.labelled:,} with a known label"
        return f"{cases}{self.images:,} images of {self.patients:,} patients{labelled}"

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON; `over_folds` is there to be read, and follows from `folds`."""
        reliability = [each._asdict() for each in self.reliability]
        spread = {key: each._asdict() for key, each in self.over_folds.items()}
        return {**asdict(self), "reliability": reliability, "over_folds": spread}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Scores":
        """Read what `as_dict` gave, also after it has been JSON."""
        try:
            read: dict[str, Any] = {name: value for name, value in stored.items() if name != "over_folds"}
            for key in ("overall", "concepts"):
                read[key] = _read(stored[key])
            for key in ("by_class", "by_concept", "by_attribute"):
                read[key] = {name: _read(scores) for name, scores in stored[key].items()}
            for key in ("classes", "concept_names"):
                read[key] = tuple(stored[key])
            read["sets"] = [SetScores.from_dict(each) for each in stored["sets"]]
            read["folds"] = [FoldScores.from_dict(each) for each in stored["folds"]]
            read["reliability"] = [ReliabilityBin(**each) for each in stored["reliability"]]
            read["roc"] = {name: [(x, y) for x, y in curve] for name, curve in stored["roc"].items()}
            if stored.get("misread") is not None:
                read["misread"] = Misread.from_dict(stored["misread"])
            return cls(**read)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"these are not scores of this version ({error}); evaluate again") from None


def score(predictions: Predictions, *, temperature: float = 1.0, resamples: int = 1000, seed: int = 0) -> Scores:
    """Score predictions, after dividing their logits by `temperature`.

    Intervals are the middle 95 % of `resamples` bootstrap resamples of the patients, all images of a patient going
    together; images are resampled where there are no patients. Unknown labels and concepts are left out. Without
    resamples there are no intervals.
    """
    from parsecaps.metrics.point_scores import class_scores, concept_scores, roc_curve

    predictions = predictions.tempered(temperature)
    group, probabilities = predictions.groups(), predictions.probabilities()
    rows = np.flatnonzero(predictions.label >= 0)
    logits, label = predictions.logits[rows], predictions.label[rows]
    of_classes, weigh_classes = Estimates(class_scores(logits, label), group), WeightedClassScores(logits, label)
    presence, truth = predictions.presence, predictions.concepts
    of_concepts, attributes = None, Attributes()
    if presence is not None and truth is not None and predictions.concept_names:
        attributes = find_attributes(predictions.concept_names, truth)
        values = concept_scores(presence, truth) | attribute_scores(presence, truth, attributes)
        of_concepts = Estimates(values, group)
        weigh_concepts = WeightedConceptScores(presence, truth)
        weigh_attributes = WeightedAttributeScores(presence, truth, attributes)
    for weights in resampled_weights(group, resamples, seed):
        of_classes.add(weigh_classes(weights[rows]))
        if of_concepts is not None:
            of_concepts.add(weigh_concepts(weights) | weigh_attributes(weights))
    curves = {name: roc_curve(probabilities[rows, k], label == k) for k, name in enumerate(predictions.classes)}
    concept_names = predictions.concept_names if of_concepts is not None else ()
    overall = _overall(of_classes, predictions.label >= 0)
    overall |= scores_by_patient(predictions, resamples=resamples, seed=seed)
    if predictions.steadiness is not None:
        (overall["steadiness"],) = means(
            predictions.steadiness[:, None], group, resamples=resamples, seed=seed
        ).scores()
    return Scores(
        classes=predictions.classes,
        concept_names=concept_names,
        images=len(predictions),
        labelled=len(rows),
        patients=len(np.unique(group)),
        temperature=temperature,
        resamples=resamples,
        seed=seed,
        overall=overall,
        by_class=_by_class(of_classes, predictions),
        confusion=of_classes.values["confusion"].tolist(),
        reliability=reliability_bins(probabilities, predictions.label),
        roc={name: curve for name, curve in curves.items() if curve is not None},
        concepts={} if of_concepts is None or truth is None else _concepts(of_concepts, truth, attributes),
        by_concept={} if of_concepts is None or truth is None else _by_concept(of_concepts, truth, concept_names),
        present={} if truth is None else {name: int((truth[:, j] == 1).sum()) for j, name in enumerate(concept_names)},
        notes=_notes(predictions, of_classes.values),
        by_attribute={} if of_concepts is None or truth is None else _by_attribute(of_concepts, truth, attributes),
        misread=misread(predictions),
    )


def _read(stored: Mapping[str, Mapping[str, Any]]) -> dict[str, Score]:
    return {name: Score(**each) for name, each in stored.items()}


def _overall(estimates: Estimates, labelled: np.ndarray) -> dict[str, Score]:
    from_key = {
        "accuracy": "accuracy",
        "balanced_accuracy": "mean_recall",
        **{f"macro_{key}": f"mean_{key}" for key in PER_CLASS},
        **{key: key for key in ("ece", "brier", "nll")},
    }
    return {name: estimates.score(key, labelled) for name, key in from_key.items()}


def _by_class(estimates: Estimates, predictions: Predictions) -> dict[str, dict[str, Score]]:
    label, predicted = predictions.label, predictions.logits.argmax(1)
    labelled = label >= 0
    scores = {}
    for k, name in enumerate(predictions.classes):
        truth, named = label == k, labelled & (predicted == k)
        rest = labelled & ~truth
        masks = {
            "precision": (named,),
            "recall": (truth,),
            "f1": (truth | named,),
            "specificity": (rest,),
            "auroc": (labelled, truth, rest),
        }
        scores[name] = {key: estimates.score(key, *masks[key], row=k) for key in PER_CLASS}
    return scores


def _concepts(estimates: Estimates, truth: np.ndarray, attributes: Attributes) -> dict[str, Score]:
    names = (*(f"mean_{key}" for key in PER_CONCEPT), "explanation_error_l2", "explanation_error_l2_squared")
    any_known = ~np.isnan(truth).all(1)
    scores = {name: estimates.score(name, any_known) for name in names}
    if attributes:
        any_value = np.any([known_value(truth, columns) for columns in attributes.values()], axis=0)
        scores |= {f"mean_{key}": estimates.score(f"mean_{key}", any_value) for key in PER_ATTRIBUTE}
    return scores


def _by_attribute(estimates: Estimates, truth: np.ndarray, attributes: Attributes) -> dict[str, dict[str, Score]]:
    return {
        name: {key: estimates.score(key, known_value(truth, columns), row=i) for key in PER_ATTRIBUTE}
        for i, (name, columns) in enumerate(attributes.items())
    }


def _by_concept(estimates: Estimates, truth: np.ndarray, names: tuple[str, ...]) -> dict[str, dict[str, Score]]:
    scores = {}
    for j, name in enumerate(names):
        present, absent = truth[:, j] == 1, truth[:, j] == 0
        known = present | absent
        scores[name] = {
            "auroc": estimates.score("auroc", known, present, absent, row=j),
            "f1": estimates.score("f1", known, row=j),
        }
    return scores


def _notes(predictions: Predictions, values: dict[str, np.ndarray]) -> list[str]:
    """What a reader must know to read the numbers rightly."""
    notes = []
    known = predictions.label >= 0
    if not known.any():
        notes.append("no label is known: there are no scores of classes")
    elif not known.all():
        notes.append(f"{int((~known).sum()):,} of {len(known):,} images have no known label and are left out")
    missing = [name for name, count in zip(predictions.classes, values["count"], strict=True) if not count]
    if missing and known.any():
        notes.append(f"no image of {', '.join(missing)}: no recall and no AUROC, and left out of macro means")
    patients = len(np.unique(predictions.groups()[known]))
    if patients == 1:
        notes.append("all labelled images are of one patient: there are no intervals")
    if known.any() and values["accuracy"] == 1:
        notes.append(
            f"no mistake in {int(known.sum()):,} images of {patients:,} patients: resampling cannot show how uncertain "
            f"that is; with 95 % confidence up to {100 * (1 - 0.05 ** (1 / patients)):.1f} % of patients may still "
            "have one"
        )
    return notes
