"""The scores of runs on patients they never saw, of one alone or of several on the same cases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.config import EvaluateConfig, load_settings
from parsecaps.data.batches import Augmentation
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import SPLITS, Split
from parsecaps.data.sources import open_data
from parsecaps.metrics import Comparison, Ensemble, FoldScores, Scores, Sets, find_metric, score, score_sets
from parsecaps.metrics import compare as compare_predictions
from parsecaps.metrics import ensemble as average_predictions
from parsecaps.metrics.calibration import Calibration
from parsecaps.metrics.conformal import prediction_sets
from parsecaps.metrics.metric import p_equals
from parsecaps.metrics.predictions import Predictions, concatenate
from parsecaps.model import Model
from parsecaps.prediction.predict import predict_cases
from parsecaps.run import Run
from parsecaps.types import ProgressCallback, StageCallback, silent

_SHOWN, _MEAN = "accuracy", "mean of all"
_PARTS = {"test": "test", "val": "validation", "train": "training"}
_FLATTERING = {
    "val": "scores on the validation part, which chose the epoch and the temperature: expect less on new patients",
    "train": "scores on the training part, which the model has learned from: they say nothing about new patients",
}


@dataclass(frozen=True)
class Evaluation:
    """What a model said of cases, with its temperature applied; its prediction sets by risk; and the scores of that."""

    predictions: Predictions
    sets: dict[float, Sets]
    scores: Scores


def evaluate(
    run: Run | str | Path,
    *,
    part: str = "auto",
    data: str | None = None,
    resamples: int = 1000,
    risks: Sequence[float] = (0.05, 0.1, 0.2),
    device: str = "auto",
) -> Scores:
    """Score a run or its folder: on its test part (validation without one), another `part`, or all cases of `data`.

    Every score has its 95 % interval over patients and its n: `evaluate(run)["accuracy"]`. A cross-validation is scored
    on all its folds together. Nothing is written. `device` is auto (a GPU where there is one), cpu or cuda.
    """
    values = {"part": part, "data": data, "resamples": resamples, "risks": tuple(risks), "device": device}
    return evaluate_run(run, load_settings(EvaluateConfig, values=values)).scores


def evaluate_run(
    folder: Run | str | Path,
    settings: EvaluateConfig | None = None,
    *,
    reading: ProgressCallback = silent,
    scoring: ProgressCallback = silent,
) -> Evaluation:
    """Score a run on a part of its own data or on all cases of other data; or a cross-validation on all its folds."""
    settings = settings or EvaluateConfig()
    run = Run(Path(folder), device=settings.device, reading=reading)
    return _evaluate_folds(run, settings, scoring) if run.folds else _evaluate_one(run, settings, scoring)


def calibrate_run(run: Run) -> None:
    """Fit the temperature and the conformal quantiles on the validation part, and keep them beside the model."""
    validation = predict_cases(run.model, run.cases("val"))
    if len(validation):
        Calibration.fit(validation).save(run.bundle_folder)


def write_results(run: Run, evaluation: Evaluation) -> None:
    """Write the card (of a fold, not of all), the page and, last, `scores.json`: a run that has it is finished."""
    from parsecaps.report.result_pages import scores_page

    if run.is_trained:
        write_card(run, evaluation.scores)
    name = run.folder.name
    run.write_text(run.page_file, scores_page({name: evaluation.scores}, title=f"Scores: {name}"))
    run.write_json(run.scores_file, evaluation.scores.as_dict())


def write_card(run: Run, scores: Scores | None) -> None:
    """Write the card of the run's model beside it."""
    from parsecaps.report.cards import model_card

    model = Model.load(run.bundle_folder, "cpu")  # as it is now: its concepts may have got other names
    run.write_text(run.card_file, model_card(model, run.config, run.about, run.data_check, scores))


def _evaluate_one(run: Run, settings: EvaluateConfig, scoring: ProgressCallback) -> Evaluation:
    model, division = run.model, run.division
    part: Split = "val" if "val" in division and "test" not in division else "test"
    part = part if settings.part == "auto" else settings.part
    if settings.data is None and not run.rows(part):
        there = [f"--part {each}" for each in SPLITS if each in division]
        raise ValueError(f"{run.folder} has no {part} part to score; give {', '.join(there)} or --data DATA")
    if (several := settings.views > 1) and run.config.augmentation is None:
        raise ValueError(f"{run.folder} was trained without augmentation, so it has no other views; leave views out")
    changes = Augmentation(**run.config.augmentation.model_dump()) if several and run.config.augmentation else None
    if settings.data is None:
        scored = run.cases(part)
        cases, flattering = f"{_PARTS[part]} part", _FLATTERING.get(part)
        if part == "val" and "test" not in division:
            flattering = f"there is no test part; these are {flattering}"
        elif flattering is None and run.config.data.allow_leaks and (leaks := len(run.data_check.get("leaks", ()))):
            flattering = f"leaks between the parts ({leaks:,}) were allowed (--allow-leaks): new patients are harder"
    else:
        other = open_data(settings.data)
        others = prepare_all(other, model.preparation, skip_bad=run.config.data.skip_bad, progress=run.reading)
        scored = CaseSet(other, others)
        learned = {run.prepared.digests[row] for row in run.rows("train")}
        known = sum(each in learned for each in others.digests)
        warning = f"{known:,} of the images are among those that the model was trained on: expect less on new patients"
        cases, flattering = f"all of {settings.data}", warning if known else None
    predictions = predict_cases(model, scored, changes=changes, views=settings.views, progress=scoring)
    calibration, judges_itself = _calibration(run, changes, settings.views), settings.data is None and part == "val"
    sets, notes = dict[float, Sets](), [calibration.note] if calibration.note else []
    if calibration.quantiles is None:
        notes = ["there is no validation part, so the probabilities are not calibrated"]
    elif not judges_itself:
        probabilities = predictions.probabilities(calibration.temperature)
        for risk in settings.risks:
            threshold = calibration.threshold(risk)
            inside = prediction_sets(probabilities, threshold.probability)
            sets[risk] = Sets(inside, [threshold.note] if threshold.note else [])
    notes += [flattering] if flattering else []
    if several:
        notes.append(f"averaged over {settings.views} views of each image, itself and random changes as in training")
    scores = score(predictions, temperature=calibration.temperature, resamples=settings.resamples)
    tempered = predictions.tempered(calibration.temperature)
    measured = score_sets(tempered, sets, resamples=settings.resamples)
    return Evaluation(tempered, sets, replace(scores, cases=cases, sets=measured, notes=[*scores.notes, *notes]))


def _evaluate_folds(run: Run, settings: EvaluateConfig, scoring: ProgressCallback) -> Evaluation:
    """All folds together: each case by the model that did not see it, at that model's temperature."""
    folds = run.folds
    if settings.data is not None or settings.part not in ("auto", "test"):
        raise ValueError(f"{run.folder} is a cross-validation of several models; for other cases give one of its folds")
    if unfinished := [fold.folder for fold in folds if not fold.is_trained]:
        raise FileNotFoundError(f"{unfinished[0]} is not finished; go on with parsecaps train --resume {run.folder}")
    parts = [_evaluate_one(fold, settings.model_copy(update={"part": "test"}), scoring) for fold in folds]
    names = [fold.folder.name for fold in folds]
    predictions = concatenate([part.predictions for part in parts])
    sets = {
        risk: Sets(
            np.concatenate([part.sets[risk].inside for part in parts]),
            _join_notes(names, [part.sets[risk].notes for part in parts]),
        )
        for risk in settings.risks
        if all(risk in part.sets for part in parts)
    }
    scores = score(predictions, resamples=settings.resamples)
    listed = [
        FoldScores(name, part.scores.images, part.scores.patients, part.scores.temperature, part.scores.single)
        for name, part in zip(names, parts, strict=True)
    ]
    of_folds = [[note for note in part.scores.notes if not note.startswith("few patients")] for part in parts]
    scores = replace(
        scores,
        cases=f"test parts of {len(folds)} folds, pooled",
        sets=score_sets(predictions, sets, resamples=settings.resamples),
        folds=listed,
        notes=[*scores.notes, *_join_notes(names, of_folds)],  # the interval is that of all folds
    )
    return Evaluation(predictions, sets, scores)


def _join_notes(names: Sequence[str], notes: Sequence[list[str]]) -> list[str]:
    about: dict[str, list[str]] = {}
    for name, own in zip(names, notes, strict=True):
        for note in own:
            about.setdefault(note, []).append(name)
    return [f"{', '.join(folds)}: {note}" for note, folds in about.items()]


def _calibration(run: Run, changes: Augmentation | None, views: int) -> Calibration:
    """The one that is stored; with several views, answers are less sure, so they get one of their own."""
    if not run.rows("val") or (views == 1 and run.model.calibration.quantiles is not None):
        return run.model.calibration
    return Calibration.fit(predict_cases(run.model, run.cases("val"), changes=changes, views=views))


@dataclass(frozen=True, repr=False)
class ComparedRuns:
    """Runs on the same cases, by name; paired `comparisons` of the first with each other one, and the mean of all."""

    evaluations: dict[str, Evaluation]
    comparisons: dict[tuple[str, str], Comparison]
    ensemble: Ensemble | None

    @property
    def scores(self) -> dict[str, Scores]:
        """The scores of each run, with their intervals over patients."""
        return {name: each.scores for name, each in self.evaluations.items()}

    def page(self, title: str = "Scores") -> str:
        """An HTML page of all results."""
        from parsecaps.report.result_pages import scores_page

        return scores_page(self.scores, self.comparisons, self.ensemble, title=title)

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        runs = {name: each.as_dict() for name, each in self.scores.items()}
        pairs = [{"first": one, "second": other, **each.as_dict()} for (one, other), each in self.comparisons.items()]
        return {"runs": runs, "comparisons": pairs, "ensemble": self.ensemble and self.ensemble.as_dict()}

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

    `runs` are runs or their folders, named by their paths or by your own names. The cases are their test part
    (validation without one), another `part`, or all of `data`. Nothing is written.
    """
    named = dict(runs) if isinstance(runs, Mapping) else {str(Path(run)): run for run in runs}
    if len({Path(run).resolve() for run in named.values()}) < max(len(runs), 1):
        raise ValueError("the same run is given twice, or none; give each once")
    values = {"part": part, "data": data, "resamples": resamples, "device": device}
    return compare_runs(named, load_settings(EvaluateConfig, values=values))


def compare_runs(
    runs: Mapping[str, Run | str | Path], settings: EvaluateConfig, *, show: StageCallback = silent
) -> ComparedRuns:
    """`compare` with settings; `show` is told what is being done."""
    found = {}
    for name, folder in runs.items():
        reading, scoring = partial(show, f"reading images for {name}"), partial(show, f"predicting as {name}")
        found[name] = evaluate_run(folder, settings, reading=reading, scoring=scoring)
    said = {name: each.predictions for name, each in found.items()}
    (first, one), *others = said.items()
    pairs = {(first, name): compare_predictions(one, each, resamples=settings.resamples) for name, each in others}
    averaged = average_predictions(list(said.values()), resamples=settings.resamples) if others else None
    return ComparedRuns(found, pairs, averaged)
