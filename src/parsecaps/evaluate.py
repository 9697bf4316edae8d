"""The scores of a trained run on the patients it never saw, at the confidence that its validation patients allow."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.config import EvaluateConfig, load_settings
from parsecaps.data.augment import Augmentation
from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import SPLITS, Split
from parsecaps.data.sources import open_data
from parsecaps.data.split_file import Division
from parsecaps.metrics import FoldScores, Scores, Sets, score, score_sets
from parsecaps.metrics.predictions import Predictions, concatenate
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.calibration import Calibration
from parsecaps.prediction.conformal import prediction_sets
from parsecaps.prediction.predict import predict_cases
from parsecaps.report.scores_page import model_card, scores_page
from parsecaps.run import Run
from parsecaps.types import ProgressCallback, silent

_PARTS = {"test": "test part", "val": "validation part", "train": "training part"}
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
    on all its folds together. The files in the folder stay as they are. `device` is auto (a GPU where there is one),
    cpu or cuda.
    """
    values: dict[str, Any] = {"part": part, "data": data, "resamples": resamples, "risks": tuple(risks)}
    values["device"] = device
    folder = run.folder if isinstance(run, Run) else run
    return evaluate_run(folder, load_settings(EvaluateConfig, values=values)).scores


def evaluate_run(
    folder: str | Path,
    settings: EvaluateConfig | None = None,
    *,
    reading: ProgressCallback = silent,
    scoring: ProgressCallback = silent,
) -> Evaluation:
    """Score a run on a part of its own data or on all cases of other data; or a cross-validation on all its folds.

    A run without validation is scored as it is. Nothing is written: `write_results` does that. `reading` and `scoring`
    are told how many images are read and predicted, and of how many.
    """
    settings = settings or EvaluateConfig()
    run = Run(folder, device=settings.device, reading=reading)
    return _evaluate_folds(run, settings, scoring) if run.folds else _evaluate_one(run, settings, scoring)


def calibrate_run(run: Run) -> None:
    """Fit the temperature and the conformal quantiles on the validation part, and keep them beside the model."""
    validation = predict_cases(run.bundle, run.cases("val"))
    if len(validation):
        Calibration.fit(validation).save(run.bundle_folder)


def write_results(run: Run, evaluation: Evaluation) -> None:
    """Write the card, the page and, last of all, `scores.json`: a run that has it is finished.

    A cross-validation has a card in each fold, and none of its own.
    """
    if run.is_trained:
        write_card(run, evaluation.scores)
    name = run.folder.name
    run.write_text(run.page_file, scores_page({name: evaluation.scores}, title=f"Scores: {name}"))
    run.write_json(run.scores_file, evaluation.scores.as_dict())


def write_card(run: Run, scores: Scores | None) -> None:
    """Write the card of the run's model beside it."""
    bundle = Bundle.load(run.bundle_folder)  # as it is now: its concepts may have got other names
    run.write_text(run.card_file, model_card(bundle, run.config, run.about, run.data_check, scores))


def _evaluate_one(run: Run, settings: EvaluateConfig, scoring: ProgressCallback) -> Evaluation:
    bundle, division = run.bundle, run.division
    part = _part(settings, division)
    if settings.data is None and not run.rows(part):
        there = [f"--part {each}" for each in SPLITS if each in division]
        raise ValueError(f"{run.folder} has no {part} part to score; give {', '.join(there)} or --data DATA")
    changes = _changes(run, settings.views)
    if settings.data is None:
        scored = run.cases(part)
        cases, flattering = _PARTS[part], _FLATTERING.get(part)
        if part == "val" and "test" not in division and flattering:
            flattering = f"there is no test part; these are {flattering}"
    else:
        other = open_data(settings.data)
        others = prepare_all(other, bundle.preparation, skip_bad=run.config.data.skip_bad, progress=run.reading)
        scored = CaseSet(other, others)
        learned = {run.prepared.digests[row] for row in run.rows("train")}
        cases, flattering = f"all of {settings.data}", _trained_on(sum(each in learned for each in others.digests))
    predictions = predict_cases(bundle, scored, changes=changes, views=settings.views, progress=scoring)
    calibration, judges_itself = _calibration(run, changes, settings.views), settings.data is None and part == "val"
    sets, notes = dict[float, Sets](), [calibration.note] if calibration.note else []
    if calibration.quantiles is None:
        notes = ["there is no validation part, so the probabilities are not calibrated"]
    elif not judges_itself:
        sets = {risk: _set(predictions, calibration, risk) for risk in settings.risks}
    notes += [flattering] if flattering else []
    if settings.views > 1:
        notes.append(f"averaged over {settings.views} views of each image, itself and random changes as in training")
    scores = score(predictions, temperature=calibration.temperature, resamples=settings.resamples)
    tempered = predictions.tempered(calibration.temperature)
    measured = score_sets(tempered, sets, resamples=settings.resamples)
    return Evaluation(tempered, sets, replace(scores, cases=cases, sets=measured, notes=[*scores.notes, *notes]))


def _evaluate_folds(run: Run, settings: EvaluateConfig, scoring: ProgressCallback) -> Evaluation:
    """All folds together: each case by the model that did not see it, at that model's temperature."""
    folds = run.folds
    if settings.data is not None or settings.part not in ("auto", "test"):
        raise ValueError(
            f"{run.folder} is a cross-validation of several models; for other cases give {folds[0].folder}"
        )
    for fold in folds:
        if not fold.is_trained:
            raise FileNotFoundError(f"{fold.folder} is not finished; go on with parsecaps train --resume {run.folder}")
    own = settings.model_copy(update={"part": "test"})
    parts = [_evaluate_one(fold, own, scoring) for fold in folds]
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
    """The notes of all folds, each with the names of those it is about."""
    about: dict[str, list[str]] = {}
    for name, own in zip(names, notes, strict=True):
        for note in own:
            about.setdefault(note, []).append(name)
    return [f"{', '.join(folds)}: {note}" for note, folds in about.items()]


def _part(settings: EvaluateConfig, division: Division) -> Split:
    if settings.part != "auto":
        return settings.part
    return "val" if "val" in division and "test" not in division else "test"


def _calibration(run: Run, changes: Augmentation | None, views: int) -> Calibration:
    """The one that is stored; with several views, answers are less sure, so they get one of their own."""
    if not run.rows("val") or (views == 1 and run.bundle.calibration.quantiles is not None):
        return run.bundle.calibration
    return Calibration.fit(predict_cases(run.bundle, run.cases("val"), changes=changes, views=views))


def _set(predictions: Predictions, calibration: Calibration, risk: float) -> Sets:
    threshold = calibration.threshold(risk)
    inside = prediction_sets(predictions.probabilities(calibration.temperature), threshold.probability)
    return Sets(inside, [threshold.note] if threshold.note else [])


def _trained_on(images: int) -> str | None:
    if not images:
        return None
    return f"{images:,} of the images are among those that the model was trained on: expect less on new patients"


def _changes(run: Run, views: int) -> Augmentation | None:
    """The changes of the images that the run was trained with, where several views are asked for."""
    if views == 1:
        return None
    if run.config.augmentation is None:
        raise ValueError(f"{run.folder} was trained without augmentation, so it has no other views; leave views out")
    return Augmentation(**run.config.augmentation.model_dump())
