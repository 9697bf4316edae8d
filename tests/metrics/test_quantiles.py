from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax

import parsecaps
from parsecaps.metrics.calibration import fit_temperature
from parsecaps.metrics.conformal import ConformalQuantiles, prediction_sets
from studies.coverage import set_coverage
from tests.messages import message, refused


def abstain(sets: np.ndarray) -> np.ndarray:
    """Where a set does not name exactly one class."""
    return sets.sum(1) != 1


def cases(random: np.random.Generator, patients: int, images: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """From 1 to `images` images per patient, as hard as the patient is; hard patients have more of them."""
    hard = random.random(patients) < 0.3
    count = np.where(hard, images, 1)
    patient = np.repeat(np.arange(patients), count)
    label = random.integers(3, size=len(patient))
    logits = random.normal(size=(len(patient), 3)) + np.repeat(random.normal(size=(patients, 3)), count, axis=0)
    logits[np.arange(len(label)), label] += np.where(hard, 0.0, 3.0)[patient]
    return softmax(logits, axis=1), label, patient


@pytest.mark.parametrize("images", [1, 8])
@pytest.mark.parametrize("risk", [0.05, 0.2])
def test_a_new_patient_is_covered_as_promised(images: int, risk: float) -> None:
    """Over many calibrations, one image of a new patient; neither less than promised nor much more."""
    random = np.random.default_rng(5)
    covered = []
    for _ in range(300):
        probabilities, label, patient = cases(random, 60, images)
        threshold = ConformalQuantiles.fit(probabilities, label, patient).threshold(risk)
        new, truth, who = cases(random, 50, images)
        one_each = np.unique(who, return_index=True)[1]
        held = prediction_sets(new, threshold.probability)[np.arange(len(truth)), truth]
        covered.append(held[one_each].mean())
    slack = 4 * np.std(covered) / np.sqrt(len(covered))
    assert 1 - risk - slack <= np.mean(covered) <= 1 - risk + 1.5 / 61 + slack


@given(seed=st.integers(0, 10**6), patients=st.integers(10, 40), risk=st.sampled_from([0.1, 0.25]))
def test_with_two_classes_the_temperature_of_the_same_patients_changes_no_set(
    seed: int, patients: int, risk: float
) -> None:
    random = np.random.default_rng(seed)
    logits, new = (random.normal(scale=3, size=(count, 2)) for count in (patients, 50))
    label = np.where(random.random(patients) < 0.8, logits.argmax(1), 1 - logits.argmax(1))
    temperature = fit_temperature(logits, label).temperature
    sets = []
    for each in (1.0, temperature):
        threshold = ConformalQuantiles.fit(softmax(logits / each, axis=1), label).threshold(risk)
        sets.append(prediction_sets(softmax(new / each, axis=1), threshold.probability - 1e-12))
    assert (sets[0] == sets[1]).all()


def test_temperature_and_epoch_of_the_same_patients_cost_little() -> None:
    alone, temperature, epoch = set_coverage(20, 2.0, trials=80)
    assert 0.9 < temperature == pytest.approx(alone, abs=0.005)
    assert 0.9 < epoch < alone


@pytest.mark.parametrize("text", ["report/templates/scores.html", "report/templates/model_card.md"])
def test_what_is_shown_says_that_the_risk_is_kept_approximately(text: str) -> None:
    shown = (Path(parsecaps.__file__).parent / text).read_text(encoding="utf-8")
    about = shown[shown.index("Prediction sets") :][:600]
    assert "may choose the epoch" in about
    assert "not exactly" in about or "approximately" in about


@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 40),
    risk=st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.9]),
    ties=st.booleans(),
)
def test_leaving_out_any_one_case_covers_the_rest(seed: int, count: int, risk: float, ties: bool) -> None:
    """The guarantee itself, without chance: each of n + 1 exchangeable cases in turn is the new one."""
    random = np.random.default_rng(seed)
    probabilities = softmax(random.normal(size=(count + 1, 3)), axis=1)
    if ties:
        probabilities = np.round(probabilities, 1)
    label = random.integers(3, size=count + 1)
    held = []
    for new in range(count + 1):
        rest = np.delete(np.arange(count + 1), new)
        threshold = ConformalQuantiles.fit(probabilities[rest], label[rest]).threshold(risk)
        held.append(prediction_sets(probabilities[[new]], threshold.probability)[0, label[new]])
    assert np.mean(held) >= 1 - risk - 1e-9


@given(seed=st.integers(0, 10**6), patients=st.integers(1, 12), risk=st.sampled_from([0.1, 0.25, 0.5]))
def test_leaving_out_any_one_patient_covers_its_images(seed: int, patients: int, risk: float) -> None:
    random = np.random.default_rng(seed)
    probabilities, label, patient = cases(random, patients + 1, 5)
    held = []
    for new in range(patients + 1):
        mine = patient == new
        threshold = ConformalQuantiles.fit(probabilities[~mine], label[~mine], patient[~mine]).threshold(risk)
        sets = prediction_sets(probabilities[mine], threshold.probability)
        held.append(sets[np.arange(mine.sum()), label[mine]].mean())
    assert np.mean(held) >= 1 - risk - 1e-9


def test_the_threshold_by_hand() -> None:
    """Nine cases and a risk of 0.2: the 8th largest of 9 (0.8 x 10)."""
    of_truth = np.array([0.9, 0.1, 0.8, 0.3, 0.7, 0.6, 0.5, 0.4, 0.2])
    probabilities = np.stack([of_truth, 1 - of_truth], axis=1)
    threshold = ConformalQuantiles.fit(probabilities, np.zeros(9, dtype=int)).threshold(0.2)
    assert (threshold.probability, threshold.patients, threshold.note) == (0.2, 9, None)
    assert ConformalQuantiles.fit(probabilities, np.zeros(9, dtype=int)).threshold(0.1).probability == 0.1
    assert ConformalQuantiles.fit(probabilities, np.zeros(9, dtype=int), ["p"] * 9).threshold(0.2).note is not None


def test_too_few_cases_abstain_and_say_so() -> None:
    probabilities = np.full((18, 2), 0.5)
    threshold = ConformalQuantiles.fit(probabilities, np.zeros(18, dtype=int)).threshold(0.05)
    assert threshold.probability == 0
    message(threshold.note)
    certain = np.array([[1.0, 0.0]])
    assert abstain(prediction_sets(certain, threshold.probability)).all()
    assert ConformalQuantiles.fit(np.full((19, 2), 0.5), np.zeros(19, dtype=int)).threshold(0.05).note is None


def test_no_known_label_abstains() -> None:
    threshold = ConformalQuantiles.fit(np.full((5, 2), 0.5), np.full(5, -1), ["p"] * 5).threshold(0.5)
    assert (threshold.probability, threshold.patients) == (0, 0)
    assert threshold.note is not None


def test_no_set_is_empty() -> None:
    sets = prediction_sets(np.array([[0.9, 0.1, 0.0], [0.4, 0.3, 0.3], [0.5, 0.5, 0.0]]), 0.5)
    assert sets.tolist() == [[True, False, False], [True, False, False], [True, True, False]]
    assert abstain(sets).tolist() == [False, False, True]


@given(seed=st.integers(0, 10**6), accurate=st.booleans())
def test_who_takes_a_higher_risk_is_not_answered_less_often(seed: int, accurate: bool) -> None:
    """Also where the model is wrong more seldom than the risk allows."""
    random = np.random.default_rng(seed)
    label = random.integers(3, size=120)
    logits = random.normal(size=(120, 3)) + (6 if accurate else 1) * np.eye(3)[label]
    probabilities = softmax(logits, axis=1)
    thresholds = [
        ConformalQuantiles.fit(probabilities[:60], label[:60]).threshold(risk).probability
        for risk in (0.05, 0.1, 0.2, 0.4)
    ]
    answered = [(~abstain(prediction_sets(probabilities[60:], threshold))).mean() for threshold in thresholds]
    assert answered == sorted(answered)


@pytest.mark.parametrize("risk", [0.0, 1.0, -0.1, float("nan")])
def test_a_risk_is_between_0_and_1(risk: float) -> None:
    with refused(ValueError):
        ConformalQuantiles.fit(np.full((5, 2), 0.5), np.zeros(5, dtype=int)).threshold(risk)
