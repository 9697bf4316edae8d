"""The scores of a trained run on the patients it never saw, at the confidence that its validation patients allow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from parsecaps.bundle import Bundle
from parsecaps.config import Config, EvaluateConfig
from parsecaps.data.augment import Augmentation
from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.cases import DataSet, Split
from parsecaps.data.sources import open_data
from parsecaps.data.splits import Division, rows_of
from parsecaps.evaluation.conformal import prediction_sets
from parsecaps.evaluation.deciding import decide
from parsecaps.evaluation.fold_scores import FoldScores
from parsecaps.evaluation.predicting import predict_cases
from parsecaps.evaluation.predictions import Predictions, concatenate
from parsecaps.evaluation.scores import Scores, score
from parsecaps.evaluation.set_scores import Sets, score_sets
from parsecaps.training.run_folder import RunFolder

Reading = Callable[[int, int], None]
_PARTS = {"test": "test part", "val": "validation part", "train": "training part"}
_FLATTERING = {
    "val": "scores on the validation part, which chose the epoch and the temperature: expect less on new patients",
    "train": "scores on the training part, which the model has learned from: they say nothing about new patients",
}


@dataclass(frozen=True)
class Evaluation:
    """What a model said of cases, with its temperature applied; its prediction sets by risk; and the scores of that.

    `validation` is what it said of its validation part, as it came: what prediction is calibrated by. It is None where
    there is none, and for a cross-validation, whose folds have one each.
    """

    predictions: Predictions
    sets: dict[float, Sets]
    scores: Scores
    validation: Predictions | None = None


def evaluate_run(
    folder: str | Path, settings: EvaluateConfig | None = None, *, reading: Reading = lambda done, total: None
) -> Evaluation:
    """Score a run on a part of its own data or on all cases of other data; or a cross-validation on all its folds.

    The temperature is fitted on the run's validation part. A run without validation is scored as it is. Nothing is
    written: `pipeline.results` does that.
    """
    run, settings = RunFolder(Path(folder)), settings or EvaluateConfig()
    config = run.read_config()
    if config.data.folds and config.data.fold is None:
        return _evaluate_folds(run, config, settings, reading)
    return _evaluate_one(run, config, settings, reading)


def _evaluate_one(run: RunFolder, config: Config, settings: EvaluateConfig, reading: Reading) -> Evaluation:
    if not run.bundle.is_dir():
        raise FileNotFoundError(
            f"{run.bundle} is missing: the run is not finished; go on with train --resume {run.path}"
        )
    bundle = Bundle.load(run.bundle, settings.device)
    own = open_data(config.data.path, config.data.source)
    division = run.read_division(own)
    part = _part(settings, division)
    rows = {name: rows_of(division, name) for name in dict.fromkeys(("val", part))}
    if settings.data is None and not rows[part]:
        raise ValueError(f"{run.path} has no {part} part to score; choose another with --part, or give --data")
    prepared = prepare_all(own, bundle.preparation, skip_bad=config.data.skip_bad, progress=reading)
    changes = _changes(run, config, settings.views)
    said = _predict(bundle, own, prepared, list(rows.values()), changes, settings.views)
    by_part = dict(zip(rows, said, strict=True))
    validation, predictions = by_part["val"], by_part[part]
    if settings.data is None:
        cases, flattering = _PARTS[part], _FLATTERING.get(part)
        if part == "val" and "test" not in division and flattering:
            flattering = f"there is no test part; these are {flattering}"
    else:
        other = open_data(settings.data)
        others = prepare_all(other, bundle.preparation, skip_bad=config.data.skip_bad, progress=reading)
        (predictions,) = _predict(bundle, other, others, [list(range(len(other)))], changes, settings.views)
        learned = {prepared.digests[row] for row in rows_of(division, "train")}
        cases, flattering = f"all of {settings.data}", _trained_on(sum(each in learned for each in others.digests))
    temperature, sets = 1.0, dict[float, Sets]()
    notes = ["there is no validation part, so the probabilities are not calibrated"]
    if len(validation):
        decision, notes = decide(validation, None)
        temperature = decision.temperature
        if predictions is not validation:  # which would judge what it has set itself
            sets = _sets(predictions, validation, settings.risks)
    notes += [flattering] if flattering else []
    if settings.views > 1:
        notes.append(f"averaged over {settings.views} views of each image, itself and random changes as in training")
    scores = score(predictions, temperature=temperature, resamples=settings.resamples)
    tempered = predictions.tempered(temperature)
    measured = score_sets(tempered, sets, resamples=settings.resamples)
    scores = replace(scores, cases=cases, sets=measured, notes=[*scores.notes, *notes])
    return Evaluation(tempered, sets, scores, validation if len(validation) else None)


def _evaluate_folds(run: RunFolder, config: Config, settings: EvaluateConfig, reading: Reading) -> Evaluation:
    """All folds together: each case by the model that did not see it, at that model's temperature."""
    folds = [run.fold(i + 1) for i in range(config.data.folds)]
    if settings.data is not None or settings.part not in ("auto", "test"):
        raise ValueError(f"{run.path} is a cross-validation of several models; for other cases give {folds[0].path}")
    for fold in folds:
        if not fold.bundle.is_dir():
            raise FileNotFoundError(f"{fold.path} is not finished; go on with train --resume {run.path}")
    own = settings.model_copy(update={"part": "test"})
    parts = [_evaluate_one(fold, fold.read_config(), own, reading) for fold in folds]
    names = [fold.path.name for fold in folds]
    predictions = concatenate([part.predictions for part in parts])
    sets = {
        risk: Sets(
            np.concatenate([part.sets[risk].inside for part in parts]),
            _together(names, [part.sets[risk].notes for part in parts]),
        )
        for risk in settings.risks
        if all(risk in part.sets for part in parts)
    }
    scores = score(predictions, resamples=settings.resamples)
    listed = [
        FoldScores(name, part.scores.images, part.scores.patients, part.scores.temperature, part.scores.single)
        for name, part in zip(names, parts, strict=True)
    ]
    notes = _together(names, [part.scores.notes for part in parts])
    scores = replace(
        scores,
        cases=f"test parts of {len(folds)} folds, pooled",
        sets=score_sets(predictions, sets, resamples=settings.resamples),
        folds=listed,
        notes=[*scores.notes, *notes],
    )
    return Evaluation(predictions, sets, scores)


def _together(names: Sequence[str], notes: Sequence[list[str]]) -> list[str]:
    """The notes of all folds, each with the names of those it is about."""
    about: dict[str, list[str]] = {}
    for name, said in zip(names, notes, strict=True):
        for note in said:
            about.setdefault(note, []).append(name)
    return [f"{', '.join(folds)}: {note}" for note, folds in about.items()]


def _part(settings: EvaluateConfig, division: Division) -> Split:
    if settings.part != "auto":
        return settings.part
    return "val" if "val" in division and "test" not in division else "test"


def _sets(predictions: Predictions, validation: Predictions, risks: Sequence[float]) -> dict[float, Sets]:
    sets, (_, known) = {}, decide(validation, None)
    for risk in risks:
        decision, notes = decide(validation, risk)
        assert decision.threshold is not None
        inside = prediction_sets(predictions.probabilities(decision.temperature), decision.threshold)
        sets[risk] = Sets(inside, notes[len(known) :])
    return sets


def _trained_on(images: int) -> str | None:
    if not images:
        return None
    return f"{images:,} of the images are among those that the model was trained on: expect less on new patients"


def _changes(run: RunFolder, config: Config, views: int) -> Augmentation | None:
    """The changes of the images that the run was trained with, where several views are asked for."""
    if views == 1:
        return None
    if config.augmentation is None:
        raise ValueError(f"{run.path} was trained without augmentation, so it has no other views; leave views out")
    return Augmentation(**config.augmentation.model_dump())


def _predict(
    bundle: Bundle,
    data: DataSet,
    prepared: PreparedImages,
    parts: Sequence[list[int]],
    changes: Augmentation | None,
    views: int,
) -> list[Predictions]:
    """What the model says of each of several lists of cases."""
    good = set(prepared.good)
    listed = ([row for row in rows if row in good] for rows in parts)
    return [predict_cases(bundle, data, prepared, rows, changes=changes, views=views) for rows in listed]
