"""The scores of a trained run on the patients it never saw, at the confidence that its validation patients allow."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from parsecaps.bundle import Bundle
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet, Split
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of
from parsecaps.evaluation.deciding import CALIBRATION_FILE, decide
from parsecaps.evaluation.predicting import predict_cases
from parsecaps.evaluation.predictions import Predictions
from parsecaps.evaluation.scores import Scores, score
from parsecaps.training.run_folder import RunFolder

Reading = Callable[[int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """What a model said of cases, and the scores of that; `notes` say what to know before believing them."""

    predictions: Predictions
    scores: Scores
    notes: list[str]


def evaluate_run(
    folder: str | Path,
    *,
    part: Split = "test",
    data: str | None = None,
    resamples: int = 1000,
    reading: Reading = lambda done, total: None,
) -> Evaluation:
    """Score a run on a part of its own data, or on all cases of other `data`.

    The temperature is fitted on the run's validation part; what the model says of that part is kept in its bundle,
    where prediction finds it. A run without validation is scored as it is.
    """
    run = RunFolder(Path(folder))
    config = run.read_config()
    if not run.bundle.is_dir():
        raise FileNotFoundError(f"{run.bundle} is missing: the run is not finished; go on with train --resume {folder}")
    bundle = Bundle.load(run.bundle)
    own = open_data(config.data.path, config.data.source)
    division = run.read_division(own)
    validation = _predict(bundle, own, rows_of(division, "val"), config.data.skip_bad, reading)
    temperature, notes = 1.0, ["there is no validation part, so the probabilities are not calibrated"]
    if len(validation):
        validation.save(run.bundle / CALIBRATION_FILE)
        decision, notes = decide(validation, None)
        temperature = decision.temperature
    cases, rows = (own, rows_of(division, part)) if data is None else _all(open_data(data))
    if not rows:
        raise ValueError(f"{folder} has no {part} part to score; choose another with --part, or give --data")
    predictions = _predict(bundle, cases, rows, config.data.skip_bad, reading)
    if data is None and part != "test":
        notes.append(f"these are scores on the {part} part, which the training has seen")
    return Evaluation(predictions, score(predictions, temperature=temperature, resamples=resamples), notes)


def _predict(bundle: Bundle, data: DataSet, rows: list[int], skip_bad: bool, reading: Reading) -> Predictions:
    prepared = prepare_all(data, bundle.preparation, skip_bad=skip_bad, progress=reading)
    good = set(prepared.good)
    return predict_cases(bundle, data, prepared, [row for row in rows if row in good])


def _all(data: DataSet) -> tuple[DataSet, list[int]]:
    return data, list(range(len(data)))
