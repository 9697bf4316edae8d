"""Several runs on the same cases: their scores, what sets each apart from the first, and their mean, the ensemble."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from parsecaps.config import EvaluateConfig, load_settings
from parsecaps.evaluate import Evaluation, evaluate_run
from parsecaps.metrics import Comparison, Ensemble, Scores, find_metric
from parsecaps.metrics import compare as compare_predictions
from parsecaps.metrics import ensemble as average_predictions
from parsecaps.report.scores_page import p_equals, scores_page
from parsecaps.run import Run
from parsecaps.types import StageCallback, silent

_SHOWN, _MEAN = "accuracy", "mean of all"


@dataclass(frozen=True, repr=False)
class ComparedRuns:
    """What runs reach on the same cases, by their names.

    `evaluations` have what each said of every case. `comparisons` are paired, of the first run with each other one.
    `ensemble` is the mean of all, None of one alone.
    """

    evaluations: dict[str, Evaluation]
    comparisons: dict[tuple[str, str], Comparison]
    ensemble: Ensemble | None

    @property
    def scores(self) -> dict[str, Scores]:
        """The scores of each run, with their intervals over patients."""
        return {name: each.scores for name, each in self.evaluations.items()}

    def page(self, title: str = "Scores") -> str:
        """All of it as a page, in HTML."""
        return scores_page(self.scores, self.comparisons, self.ensemble, title=title)

    def as_dict(self) -> dict[str, Any]:
        """The numbers, ready for JSON."""
        pairs = [{"first": one, "second": other, **each.as_dict()} for (one, other), each in self.comparisons.items()]
        return {
            "runs": {name: each.as_dict() for name, each in self.scores.items()},
            "comparisons": pairs,
            "ensemble": self.ensemble and self.ensemble.as_dict(),
        }

    def __repr__(self) -> str:
        first, metric = next(iter(self.scores)), find_metric(_SHOWN)
        width = max(map(len, [*self.scores, _MEAN]))
        lines = [f"{self.scores[first].counts}; {metric.title}:"]
        for name, scores in self.scores.items():
            line = f"  {name:<{width}}  {metric.with_interval(scores[_SHOWN])}"
            if (pair := self.comparisons.get((first, name))) is not None:
                found = pair.differences[_SHOWN]
                interval = metric.difference_interval(found.low, found.high)
                line += f"; {metric.difference(found.difference)} ({interval}), {p_equals(found.p_value)}"
            lines.append(line)
        if self.ensemble is not None:
            lines.append(f"  {_MEAN:<{width}}  {metric.with_interval(self.ensemble.scores[_SHOWN])}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"


def compare(
    runs: Mapping[str, Run | str | Path] | Sequence[Run | str | Path],
    *,
    part: str = "auto",
    data: str | None = None,
    resamples: int = 1000,
    device: str = "auto",
) -> ComparedRuns:
    """Score runs on the same cases, and compare each with the first: a paired test over the same resamples of patients.

    `runs` are runs or their folders, under names of your own, or else their paths. The cases are their test part
    (validation without one), another `part`, or all of `data`. The files in the folders stay as they are.
    """
    named = dict(runs) if isinstance(runs, Mapping) else {str(_folder(run)): run for run in runs}
    if len({_folder(run).resolve() for run in named.values()}) < max(len(runs), 1):
        raise ValueError("the same run is given twice, or none; give each once")
    values = {"part": part, "data": data, "resamples": resamples, "device": device}
    return compare_runs(
        {name: _folder(run) for name, run in named.items()}, load_settings(EvaluateConfig, values=values)
    )


def compare_runs(runs: Mapping[str, Path], settings: EvaluateConfig, *, show: StageCallback = silent) -> ComparedRuns:
    """`compare` of folders with settings; `show` is told what is being done."""
    found = {}
    for name, folder in runs.items():
        reading, scoring = partial(show, f"reading images for {name}"), partial(show, f"predicting as {name}")
        found[name] = evaluate_run(folder, settings, reading=reading, scoring=scoring)
    said = {name: each.predictions for name, each in found.items()}
    (first, one), *others = said.items()
    pairs = {(first, name): compare_predictions(one, each, resamples=settings.resamples) for name, each in others}
    averaged = average_predictions(list(said.values()), resamples=settings.resamples) if others else None
    return ComparedRuns(found, pairs, averaged)


def _folder(run: Run | str | Path) -> Path:
    return run.folder if isinstance(run, Run) else Path(run)
