"""Several models on the same cases: is one better, or is it chance; and what their mean says, the ensemble."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import binomtest
from scipy.stats import t as student_t

from parsecaps.metrics.bootstrap import SIGNED_SHARE, Bounds, Score, interval
from parsecaps.metrics.metric import compute, p_equals, p_value
from parsecaps.metrics.patients import PatientErrors, patient_errors
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.registry import find_metric
from parsecaps.metrics.scores import score
from parsecaps.types import Grid

COMPARED = ("accuracy", "balanced_accuracy", "macro_auroc")
_OF_ENSEMBLE = ("accuracy", "balanced_accuracy", "patient_accuracy", "pooled_accuracy")
_SHOWN = 5  # cases that an error names


@dataclass(frozen=True)
class Difference:
    """A score of both models and `second - first`, with its 95 % interval and p-value; None where not defined."""

    first: float | None
    second: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None

    @classmethod
    def of(
        cls,
        first: float,
        second: float,
        resampled: np.ndarray,
        patients: int,
        *,
        bounds: Bounds = SIGNED_SHARE,
        means: int = 1,
    ) -> "Difference":
        """Of two scores, and their differences in resamples of the patients: (R,), NaN where undefined."""
        if np.isnan(first) or np.isnan(second):
            return cls(None, None, None, None, None, None)
        difference = second - first
        found = interval(difference, resampled, patients, bounds=bounds, means=means)
        if found is None:
            return cls(first, second, difference, None, None, None)
        defined, freedom = resampled[~np.isnan(resampled)].round(12), patients - means
        error = np.sqrt(patients / freedom) * defined.std(ddof=1)
        away = abs(round(difference, 12))
        p_value = 2 * float(student_t.sf(away / error, freedom)) if error else float(not away)
        return cls(first, second, difference, *found, max(p_value, 2 / (1 + len(defined))))


@dataclass(frozen=True)
class Comparison:
    """What sets two models apart on `n` images with known labels.

    `only_first` and `only_second` count the images that one model alone gets right; `mcnemar_p` is the exact p-value of
    that. McNemar's test takes images as independent: with several per patient, go by the bootstrap.
    """

    n: int
    patients: int
    both_right: int
    only_first: int
    only_second: int
    both_wrong: int
    mcnemar_p: float
    differences: dict[str, Difference]
    resamples: int
    seed: int

    def table(self, first: str, second: str) -> Grid:
        rows = []
        for name, each in self.differences.items():
            metric = find_metric(name)
            values = (metric.number(each.first), metric.number(each.second), metric.difference(each.difference))
            interval = metric.difference_interval(each.low, each.high)
            rows.append((metric.title, *values, interval, p_value(each.p_value)))
        title = f"{second} against {first}: {self.n:,} images of {self.patients:,} patients"
        return Grid(title, ("score", first, second, "difference", "95 % interval", "p"), rows)

    def line(self, first: str, second: str) -> str:
        return (
            f"only {first} is right on {self.only_first:,} images, only {second} on {self.only_second:,}; "
            f"McNemar, exact: {p_equals(self.mcnemar_p)}"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Ensemble:
    """The mean of the probabilities of several models, on `n` images with known labels.

    `scores` has its accuracy and balanced_accuracy, and those by patient where there are such; `member_accuracy` is the
    mean accuracy of the models alone. `all_wrong` and `any_wrong` count the images that all get wrong, and at least
    one; `patient_errors` says whose the former are.
    """

    models: int
    n: int
    member_accuracy: float | None
    scores: dict[str, Score]
    all_wrong: int
    any_wrong: int
    patient_errors: PatientErrors | None

    def tables(self) -> list[Grid]:
        rows = [("accuracy, mean of each alone", find_metric("accuracy").number(self.member_accuracy))]
        for name, each in self.scores.items():
            metric = find_metric(name)
            rows.append((f"{metric.title} of the mean probability", metric.with_interval(each)))
        rows += [("wrong by at least one model", f"{self.any_wrong:,}"), ("wrong by all", f"{self.all_wrong:,}")]
        title = f"ensemble, the mean of the {self.models} models: {self.n:,} images"
        errors = self.patient_errors
        whose = [errors.table(f"by all models, {errors}")] if errors is not None and errors.wrong else []
        return [Grid(title, ("score", "value"), rows), *whose]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def compare(first: Predictions, second: Predictions, *, resamples: int = 1000, seed: int = 0) -> Comparison:
    """Compare two models on the same cases, matched by name; those with unknown labels are left out.

    The p-value of a difference, at least 2 / (resamples + 1), is that of Student's t, as is its interval.
    """
    second = match(first, second)
    first, second = (each.subset(np.flatnonzero(first.label >= 0)) for each in (first, second))
    right, other = (each.logits.argmax(1) == first.label for each in (first, second))
    both_wrong, only_second, only_first, both_right = np.bincount(2 * right + other, minlength=4).tolist()
    return Comparison(
        n=len(first),
        patients=len(np.unique(first.groups())),
        both_right=both_right,
        only_first=only_first,
        only_second=only_second,
        both_wrong=both_wrong,
        mcnemar_p=mcnemar(only_first, only_second),
        differences=paired_differences(first, second, COMPARED, resamples=resamples, seed=seed),
        resamples=resamples,
        seed=seed,
    )


def ensemble(models: Sequence[Predictions], *, resamples: int = 1000, seed: int = 0) -> Ensemble:
    """The mean of models on the same cases, matched by name; each has its temperature applied already."""
    first = models[0]
    labelled = np.flatnonzero(first.label >= 0)
    members = [each.subset(labelled) for each in (first, *(match(first, other) for other in models[1:]))]
    label = members[0].label
    mean = np.mean([each.probabilities() for each in members], axis=0)
    averaged = replace(members[0], logits=np.log(np.maximum(mean, np.finfo(mean.dtype).tiny)))
    wrong = np.array([each.logits.argmax(1) != label for each in members])
    all_wrong = np.asarray(wrong.all(0))
    scores = score(averaged, resamples=resamples, seed=seed)
    return Ensemble(
        models=len(models),
        n=len(label),
        member_accuracy=float(1 - wrong.mean()) if len(label) else None,
        scores={key: scores[key] for key in _OF_ENSEMBLE if key in scores.single},
        all_wrong=int(all_wrong.sum()),
        any_wrong=int(wrong.any(0).sum()),
        patient_errors=patient_errors(members[0], all_wrong),
    )


def paired_differences(
    first: Predictions, second: Predictions, names: Sequence[str], *, resamples: int = 1000, seed: int = 0
) -> dict[str, Difference]:
    """Differences of single numbers, by the names of metrics of one kind; both models on the same resamples."""
    metrics = [find_metric(name) for name in names]
    functions = [metric.function for metric in metrics]
    cases, *others = [made for each in (first, second) if (made := metrics[0].cases.of(each)) is not None]
    (ours, our_draws), (theirs, their_draws) = (compute(each, functions, resamples, seed) for each in (cases, *others))
    return {
        metric.name: Difference.of(
            float(ours[metric.function][0, 0]),
            float(theirs[metric.function][0, 0]),
            their_draws[metric.function][0] - our_draws[metric.function][0],
            cases.patients(metric.counted(cases)),
            bounds=(metric.bounds[0] - metric.bounds[1], metric.bounds[1] - metric.bounds[0]),
            means=metric.means(cases),
        )
        for metric in metrics
    }


def mcnemar(only_first: int, only_second: int) -> float:
    """The exact two-sided p-value: could a fair coin have dealt these images so?

    >>> mcnemar(0, 5)
    0.0625
    """
    total = only_first + only_second
    return float(binomtest(only_first, total).pvalue) if total else 1.0


def match(first: Predictions, second: Predictions) -> Predictions:
    """`second` in the order of `first`; an error names the cases, labels or classes that do not match."""
    if first.classes != second.classes:
        raise ValueError(f"the classes differ: {', '.join(first.classes)} and {', '.join(second.classes)}")
    for each in (first, second):
        if len(set(each.name)) != len(each.name):
            twice = Counter(each.name).most_common(1)[0][0]
            raise ValueError(f"{twice} is there twice; cases are matched by name, so each needs its own")
    for one, other, whose in ((first, second, "second"), (second, first, "first")):
        there = set(other.name)
        if missing := [name for name in one.name if name not in there]:
            raise ValueError(f"{_named(missing)} not among the cases of the {whose}; compare on the same cases")
    rows = {name: row for row, name in enumerate(second.name)}
    matched = second.subset([rows[name] for name in first.name])
    if different := [name for name, a, b in zip(first.name, first.label, matched.label, strict=True) if a != b]:
        raise ValueError(f"{_named(different)} not labelled the same in both; evaluate both on the same data")
    return matched


def _named(names: list[str]) -> str:
    listed = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{listed}{more} {'is' if len(names) == 1 else 'are'}"
