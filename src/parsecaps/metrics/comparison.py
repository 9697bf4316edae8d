"""Two models on the same cases: is one better, or is it chance?"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import binomtest

from parsecaps.metrics.bootstrap import percentile_interval, resampled_weights, spread_over_patients
from parsecaps.metrics.weighted import WeightedClassScores, macro
from parsecaps.prediction.predictions import Predictions

COMPARED = ("accuracy", "balanced_accuracy", "macro_auroc")
_SHOWN = 5  # cases that an error names


@dataclass(frozen=True)
class Difference:
    """A score of both models and `second - first`, with its 95 % interval and the p-value of no difference.

    All over the same resamples of patients. None where a score is not defined, and no interval or p-value with one
    patient only.
    """

    first: float | None
    second: float | None
    difference: float | None
    low: float | None
    high: float | None
    p_value: float | None


@dataclass(frozen=True)
class Comparison:
    """What sets two models apart on `n` images with known labels.

    `only_first` and `only_second` count the images that one model alone gets right; `mcnemar_p` is the exact p-value
    of their being equally many by chance. McNemar's test takes images as independent, which those of one patient are
    not: with several images per patient, go by the bootstrap.
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

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "Comparison":
        """Read what `as_dict` gave."""
        try:
            differences = {name: Difference(**each) for name, each in stored["differences"].items()}
            return cls(**{**stored, "differences": differences})
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"this is not a comparison of this version ({error}); evaluate again") from None


def compare(first: Predictions, second: Predictions, *, resamples: int = 1000, seed: int = 0) -> Comparison:
    """Compare two models on the same cases, matched by name; those with unknown labels are left out.

    The p-value of a difference is twice the share of resamples on the less frequent side of zero, with one more
    counted on it, so that it is never 0: 2 / (resamples + 1) is the least. It agrees with the interval.
    """
    second = match(first, second)
    labelled = first.label >= 0
    first, second = (each.subset(np.flatnonzero(labelled)) for each in (first, second))
    right = [each.logits.argmax(1) == first.label for each in (first, second)]
    only_first, only_second = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    group = first.groups()
    weigh = [WeightedClassScores(each.logits, first.label) for each in (first, second)]
    once = [_compared(each(np.ones((len(first), 1)))) for each in weigh]
    blocks = [[_compared(each(weights)) for each in weigh] for weights in resampled_weights(group, resamples, seed)]
    spread = spread_over_patients(group, np.ones(len(first), dtype=bool))
    differences = {}
    for name in COMPARED:
        a, b = (float(values[name][0]) for values in once)
        drawn = [pair[1][name] - pair[0][name] for pair in blocks]
        differences[name] = paired_difference(a, b, np.concatenate(drawn) if drawn and spread else np.empty(0))
    return Comparison(
        n=len(first),
        patients=len(np.unique(group)),
        both_right=int((right[0] & right[1]).sum()),
        only_first=only_first,
        only_second=only_second,
        both_wrong=int((~right[0] & ~right[1]).sum()),
        mcnemar_p=mcnemar(only_first, only_second),
        differences=differences,
        resamples=resamples,
        seed=seed,
    )


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
    rows = {name: row for row, name in enumerate(second.name)}
    wanted = set(first.name)
    for missing, whose in (
        ([name for name in first.name if name not in rows], "second"),
        ([name for name in second.name if name not in wanted], "first"),
    ):
        if missing:
            raise ValueError(f"{_named(missing)} not among the cases of the {whose}; compare on the same cases")
    matched = second.subset([rows[name] for name in first.name])
    if different := [name for name, a, b in zip(first.name, first.label, matched.label, strict=True) if a != b]:
        raise ValueError(f"{_named(different)} not labelled the same in both; evaluate both on the same data")
    return matched


def _named(names: list[str]) -> str:
    listed = ", ".join(names[:_SHOWN])
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{listed}{more} {'is' if len(names) == 1 else 'are'}"


def _compared(scores: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    means = macro(scores)
    return {"accuracy": scores["accuracy"], "balanced_accuracy": means["recall"], "macro_auroc": means["auroc"]}


def paired_difference(first: float, second: float, drawn: np.ndarray) -> Difference:
    """Two scores of the same cases, with their differences in resamples of the patients: (R,), NaN where undefined."""
    if np.isnan(first) or np.isnan(second):
        return Difference(None, None, None, None, None, None)
    drawn = drawn[~np.isnan(drawn)].round(12)  # equal scores may differ in their last bits
    interval = percentile_interval(drawn)
    if interval is None:
        return Difference(first, second, second - first, None, None, None)
    below, above = int((drawn <= 0).sum()), int((drawn >= 0).sum())
    p_value = min(1.0, 2 * (1 + min(below, above)) / (1 + len(drawn)))
    return Difference(first, second, second - first, *interval, p_value)
