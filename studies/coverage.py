"""How often 95 % intervals hold the score of all patients, and prediction sets the class of a new one.

    python -m studies.coverage --patients 20 47 100
    python -m studies.coverage --sets --patients 20 47 100

The intervals are those of `parsecaps evaluate`, and plain percentiles of the resamples.

Each trial draws patients of three classes (half, 30 % and 20 %) with one to about eight images each. The logits of an
image are those of its class, shifted by chance for the patient and for the image alike, so that images of one patient
are right or wrong together. The scores of 100,000 patients stand for the truth. A second model, a little better, adds
shifts of its own; the intervals of the differences are counted as well.

With `--sets`, the patients calibrate prediction sets at a risk of 10 %: with the temperature known beforehand, fitted
on the same patients, and fitted on the same patients that chose the best of ten epochs, all of them equally good.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parsecaps.metrics import Difference, Score, compare, score
from parsecaps.metrics.calibration import Calibration
from parsecaps.metrics.classification import Classification
from parsecaps.metrics.comparison import COMPARED
from parsecaps.metrics.conformal import ConformalQuantiles, prediction_sets
from parsecaps.metrics.metric import compute
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.registry import find_metric

SCORES = ("accuracy", "balanced_accuracy", "macro_f1", "macro_auroc", "brier", "nll", "ece")
SEPARATIONS = {"harder": 2.0, "easier": 3.5}
_SHARES = (0.5, 0.3, 0.2)
_POPULATION = 100_000
_RISK, _EPOCHS, _TESTED = 0.1, 10, 500


def draw(random: np.random.Generator, patients: int, separation: float) -> tuple[Predictions, Predictions]:
    """What two models say of the images of new patients; the first is calibrated."""
    of_patient = random.choice(len(_SHARES), size=patients, p=_SHARES)
    group = np.repeat(np.arange(patients), 1 + random.poisson(3, size=patients))
    label = of_patient[group]

    def shifts() -> np.ndarray:
        return random.normal(size=(patients, len(_SHARES)))[group] + random.normal(size=(len(label), len(_SHARES)))

    truth = np.eye(len(_SHARES))[label]
    shifted = separation * truth + shifts()
    logits = separation / 2 * shifted + np.log(_SHARES)
    first = Predictions(
        name=[str(i) for i in range(len(label))],
        patient=[str(each) for each in group],
        label=label,
        logits=logits,
        classes=tuple("ABC"),
    )
    return first, replace(first, logits=logits + separation / 2 * (0.5 * shifts() + 0.3 * truth))


def percentiles(predictions: Predictions, resamples: int, seed: int) -> dict[str, tuple[float, float]]:
    """The middle 95 % of the resampled scores."""
    functions = [find_metric(name).function for name in SCORES]
    _, drawn = compute(Classification.of(predictions), functions, resamples, seed)
    ends = [np.nanpercentile(drawn[function][0], (2.5, 97.5)) for function in functions]
    return {name: (float(low), float(high)) for name, (low, high) in zip(SCORES, ends, strict=True)}


def coverage(
    patients: int, separation: float, *, trials: int, resamples: int = 1000, seed: int = 0
) -> dict[str, tuple[float, float | None]]:
    """By score, the share of trials whose interval holds the truth: ours and, but for differences, percentiles."""
    random = np.random.default_rng([seed, patients])
    first, second = (score(each, resamples=0) for each in draw(np.random.default_rng(seed), _POPULATION, separation))
    truth = {name: first[name].value or 0.0 for name in SCORES}
    better = {name: (second[name].value or 0.0) - truth[name] for name in COMPARED if name in truth}
    ours: dict[str, list[bool]] = {}
    plain: dict[str, list[bool]] = {}
    for trial in range(trials):
        pair = draw(random, patients, separation)
        found, ends = score(pair[0], resamples=resamples, seed=trial), percentiles(pair[0], resamples, trial)
        for name in SCORES:
            ours.setdefault(name, []).append(_holds(found[name], truth[name]))
            plain.setdefault(name, []).append(ends[name][0] <= truth[name] <= ends[name][1])
        compared = compare(*pair, resamples=resamples, seed=trial).differences
        for name, true in better.items():
            ours.setdefault(f"difference of {name}", []).append(_holds(compared[name], true))
    return {name: (float(np.mean(each)), _share(plain.get(name))) for name, each in ours.items()}


def set_coverage(patients: int, separation: float, *, trials: int, seed: int = 0) -> tuple[float, float, float]:
    """The share of new patients whose image has its class in the set: nothing fitted, temperature, and epoch too."""
    random = np.random.default_rng([seed, patients, 1])
    held = []
    for _ in range(trials):
        validation, _ = draw(random, patients, separation)
        test, _ = draw(random, _TESTED, separation)
        epochs = [[_moved(random, each, separation) for each in (validation, test)] for _ in range(_EPOCHS)]
        right = [(chosen.logits.argmax(1) == chosen.label).mean() for chosen, _ in epochs]
        first, best = epochs[0], epochs[int(np.argmax(right))]
        fixed = ConformalQuantiles.fit(first[0].probabilities(), first[0].label, first[0].groups())
        held.append(
            [
                _held(Calibration(1.0, fixed, None), first[1]),
                _held(Calibration.fit(first[0]), first[1]),
                _held(Calibration.fit(best[0]), best[1]),
            ]
        )
    nothing, temperature, epoch = np.mean(held, axis=0)
    return float(nothing), float(temperature), float(epoch)


def _moved(random: np.random.Generator, predictions: Predictions, separation: float) -> Predictions:
    """What the network says after another epoch, which is as good as any other."""
    return replace(
        predictions, logits=predictions.logits + separation / 4 * random.normal(size=predictions.logits.shape)
    )


def _held(calibration: Calibration, test: Predictions) -> float:
    """The share of patients whose first image has its class in the set."""
    probabilities = test.probabilities(calibration.temperature)
    inside = prediction_sets(probabilities, calibration.threshold(_RISK).probability)
    first = np.unique(test.groups(), return_index=True)[1]
    return float(inside[first, test.label[first]].mean())


def _holds(found: Score | Difference, truth: float) -> bool:
    return found.low is not None and found.high is not None and found.low <= truth <= found.high


def _share(held: list[bool] | None) -> float | None:
    return None if held is None else float(np.mean(held))


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each task and number of patients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, nargs="+", default=[20, 47, 100])
    parser.add_argument("--trials", type=int, default=600)
    parser.add_argument("--resamples", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sets", action="store_true", help="Prediction sets in place of intervals.")
    given = parser.parse_args(arguments)
    for task, separation in SEPARATIONS.items():
        for patients in given.patients:
            if given.sets:
                shares = set_coverage(patients, separation, trials=given.trials, seed=given.seed)
                of = zip(("nothing fitted", "temperature", "temperature and epoch"), shares, strict=True)
                listed = ", ".join(f"{what} {100 * share:.1f} %" for what, share in of)
                print(f"{task} task, {patients} patients, sets with the class: {listed}", flush=True)
                continue
            found = coverage(patients, separation, trials=given.trials, resamples=given.resamples, seed=given.seed)
            print(f"\n{task} task, {patients} patients, {given.trials:,} data sets: 95 % intervals that hold the truth")
            for name, (ours, plain) in found.items():
                beside = "" if plain is None else f"  percentiles {100 * plain:5.1f} %"
                print(f"  {name:<32} {100 * ours:5.1f} %{beside}", flush=True)


if __name__ == "__main__":
    main()
