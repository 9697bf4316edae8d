"""What a metric is: a function of cases that count as often as their weights say, and how its numbers are written.

With weights of one a metric is the plain score; with those of resamples it gives the bootstrap.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np

from parsecaps.metrics.bootstrap import SHARE, Bounds, Score, divide, resampled_weights
from parsecaps.metrics.predictions import Predictions
from parsecaps.types import Cell

UNDEFINED = "-"
Part = Literal["overall", "by_class", "concepts", "by_concept", "by_attribute", "sets"]
Value = TypeVar("Value")


Function = Callable[["Weighted"], np.ndarray]  # of cases -> (R,) or (C, R)


class ScoredCases:
    """N cases that some metrics are computed from, each of a patient of its own until `of_patients` says otherwise."""

    def __init__(self, count: int) -> None:
        self.group, self.rows = np.arange(count), np.arange(count)

    @classmethod
    def of(cls, predictions: Predictions) -> "ScoredCases | None":
        """Those of a model; None where it has none of this kind."""
        return None

    def of_patients(self, group: np.ndarray, rows: np.ndarray | None = None) -> Self:
        """The same, by patient: group (I,), of I images that are resampled, of which `rows` (N,) are these cases."""
        self.group, self.rows = group, np.arange(len(group)) if rows is None else rows
        return self

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def counted(self) -> np.ndarray:
        """The cases behind a single number: (N,) bool."""
        return np.ones(len(self), dtype=bool)

    def patients(self, masks: Sequence[np.ndarray]) -> int:
        """How many patients the cases of a mask (N,) come from: of several masks, those of the fewest."""
        patient = self.group[self.rows]
        return min(len(np.unique(patient[mask])) for mask in masks)


class Weighted:
    """Cases, each counting as often as its weight says: once, if no weights are given.

    Shapes:
        - weights: (N, R), a column for each resample

    >>> cases = Weighted(ScoredCases(3), np.array([[1.0, 2.0], [1.0, 0.0], [1.0, 1.0]]))
    >>> cases.mean(np.array([0.0, 3.0, 3.0]))
    array([2., 1.])
    """

    def __init__(self, cases: Any, weights: np.ndarray | None = None) -> None:
        self.cases = cases
        self.weights = np.ones((len(cases), 1)) if weights is None else weights
        self._computed: dict[Callable[[Weighted], Any] | str, Any] = {}

    def of(self, function: "Callable[[Weighted], Value]") -> Value:
        """What a function gives for these cases, computed once for all that ask."""
        if function not in self._computed:
            self._computed[function] = function(self)
        value: Value = self._computed[function]
        return value

    def total(self, name: str) -> np.ndarray:
        """The sum over cases of what they have by this name, computed once."""
        if name not in self._computed:
            self._computed[name] = self.sum(getattr(self.cases, name))
        total: np.ndarray = self._computed[name]
        return total

    def sum(self, values: np.ndarray) -> np.ndarray:
        """The sum over cases: (N,) -> (R,), (N, C) -> (C, R)."""
        return np.asarray(values.T.astype(np.float64) @ self.weights)

    def mean(self, values: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
        """The mean over cases, or over those of a mask (N,); NaN where there are none: (N,) -> (R,)."""
        mask = np.ones(len(values)) if counted is None else counted
        return divide(self.sum(values * mask), self.sum(mask))


def mean_of(values: str, of: str = "counted") -> Callable[[Weighted], np.ndarray]:
    """The metric that is a mean: of what the cases have by this name, over those of a mask: (R,).

    >>> cases = ScoredCases(3)
    >>> cases.right = np.array([True, True, False])
    >>> mean_of("right")(Weighted(cases)).round(3)
    array([0.667])
    """
    return lambda cases: cases.mean(getattr(cases.cases, values), getattr(cases.cases, of))


@dataclass(frozen=True)
class Metric:
    """A row of `METRICS`: where its scores stand, what they are called, and how they are computed and written.

    `part` and `name` are its keys in scores.json. `function` gives (R,), or (C, R) for each class, concept or attribute
    of the `cases`, NaN where not defined. `counted` gives masks of cases, (N,) or (N, C): the first counts its `n`, the
    one of the fewest patients decides how wide the interval is. `bounds`, `means` and `noise` are for
    `bootstrap.interval`. A `share` is written in per cent. Metrics with a `short` title are shown first.
    """

    part: Part
    name: str
    title: str
    cases: type[ScoredCases]
    function: Callable[[Weighted], np.ndarray]
    counted: Callable[[Any], Sequence[np.ndarray]] = lambda cases: (cases.counted,)
    share: bool = False
    lower_is_better: bool = False
    short: str = ""
    bounds: Bounds = SHARE
    means: Callable[[Any], int] = lambda cases: 1
    noise: Callable[[Weighted], np.ndarray] | None = None

    def number(self, value: float | None) -> str:
        if value is None:
            return UNDEFINED
        return f"{100 * value:.1f} %" if self.share else f"{value:.3f}"

    def interval(self, score: Score) -> str:
        if score.low is None or score.high is None:
            return UNDEFINED
        return f"{self.number(score.low)} to {self.number(score.high)}".replace(" %", "")

    def with_interval(self, score: Score) -> str:
        text = self.number(score.value)
        return text if score.low is None else f"{text} ({self.interval(score)})"

    def with_deviation(self, mean: float, std: float | None) -> str:
        text = self.number(mean)
        return text if std is None else f"{text} ± {self.number(std)}".removesuffix(" %")

    def cell(self, score: Score) -> Cell:
        return Cell(self.number(score.value), self.interval(score), score.n)

    def difference(self, value: float | None) -> str:
        if value is None:
            return UNDEFINED
        return f"{100 * value:+.1f}" if self.share else f"{value:+.3f}"

    def difference_interval(self, low: float | None, high: float | None) -> str:
        return UNDEFINED if low is None else f"{self.difference(low)} to {self.difference(high)}"


def p_value(p: float | None) -> str:
    """Three digits, as small ones say no more.

    >>> p_value(0.04), p_value(0.0002)
    ('0.040', '< 0.001')
    """
    if p is None:
        return UNDEFINED
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float | None) -> str:
    """A p-value with the letter p.

    >>> p_equals(0.04), p_equals(0.0002)
    ('p = 0.040', 'p < 0.001')
    """
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def measure(cases: ScoredCases, metrics: Sequence[Metric], *, resamples: int, seed: int) -> dict[Metric, list[Score]]:
    """The scores of each metric, one for each class, concept or attribute, or one alone; all by the same resamples."""
    functions = [function for metric in metrics for function in (metric.function, metric.noise) if function is not None]
    values, drawn = compute(cases, functions, resamples, seed)
    found = {}
    for metric in metrics:
        masks, value = metric.counted(cases), values[metric.function]
        columns = [[mask if mask.ndim == 1 else mask[:, c] for mask in masks] for c in range(len(value))]
        found[metric] = [
            Score.of(
                value[c, 0],
                drawn[metric.function][c],
                int(columns[c][0].sum()),
                patients=cases.patients(columns[c]),
                bounds=metric.bounds,
                means=metric.means(cases),
                noise=None if metric.noise is None else drawn[metric.noise][0],
            )
            for c in range(len(value))
        ]
    return found


def compute(
    cases: ScoredCases, functions: Sequence[Function], resamples: int, seed: int
) -> tuple[dict[Function, np.ndarray], dict[Function, np.ndarray]]:
    """What each function gives for the cases, (C, 1), and for resamples of their patients, (C, R)."""

    def of_weighted(weighted: Weighted) -> dict[Function, np.ndarray]:
        return {function: np.atleast_2d(weighted.of(function)) for function in functions}

    values = of_weighted(Weighted(cases))
    drawn = resampled_weights(cases.group, resamples, seed)
    blocks = [of_weighted(Weighted(cases, each if len(cases) == len(each) else each[cases.rows])) for each in drawn]
    none = {function: value[:, :0] for function, value in values.items()}
    return values, {
        function: np.concatenate([block[function] for block in (none, *blocks)], axis=1) for function in functions
    }
