import json
from dataclasses import replace
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from parsecaps.metrics import Difference, compare, ensemble, paired_differences, score
from parsecaps.metrics.comparison import COMPARED, mcnemar
from parsecaps.metrics.predictions import Predictions
from tests.messages import refused
from tests.metrics.make import make_predictions


def another(predictions: Predictions, noise: float, seed: int = 7) -> Predictions:
    """A second model: the first with noise on its logits, its cases in another order."""
    random = np.random.default_rng(seed)
    noisy = replace(predictions, logits=predictions.logits + noise * random.normal(size=predictions.logits.shape))
    return noisy.subset(random.permutation(len(noisy)))


@pytest.mark.parametrize(("first", "second"), [(0, 0), (3, 3), (0, 1), (2, 9), (40, 17)])
def test_mcnemar_is_a_fair_coin(first: int, second: int) -> None:
    total = first + second
    chances = [comb(total, i) / 2**total for i in range(total + 1)]
    wanted = sum(chance for chance in chances if chance <= chances[first] * (1 + 1e-9))
    assert mcnemar(first, second) == pytest.approx(wanted)


def test_counts_and_differences_are_those_of_each_alone() -> None:
    first = make_predictions(120, ties=False)
    second = another(first, 2.0)
    found = compare(first, second, resamples=50)
    matched = second.subset([list(second.name).index(name) for name in first.name])
    known = first.label >= 0
    a, b = (each.logits.argmax(1)[known] == first.label[known] for each in (first, matched))
    assert (found.both_right, found.both_wrong) == ((a & b).sum(), (~a & ~b).sum())
    assert (found.only_first, found.only_second) == ((a & ~b).sum(), (b & ~a).sum())
    assert found.n == known.sum() == found.both_right + found.both_wrong + found.only_first + found.only_second
    for key in COMPARED:
        each = found.differences[key]
        assert each.first == pytest.approx(score(first, resamples=0)[key].value, abs=1e-6)
        assert each.second == pytest.approx(score(second, resamples=0)[key].value, abs=1e-6)
        assert each.difference == pytest.approx((each.second or 0) - (each.first or 0))


def test_intervals_are_those_of_paired_copies() -> None:
    first = make_predictions(60, ties=False, unknown=0)
    second = replace(first, logits=another(first, 1.5).logits)
    found = compare(first, second, resamples=40, seed=9)
    random, group = np.random.default_rng(9), first.groups()
    drawn: dict[str, list[float]] = {key: [] for key in COMPARED}
    for _ in range(40):
        rows = [i for p in random.integers(20, size=20) for i in np.flatnonzero(group == p)]
        a, b = (score(each.subset(rows), resamples=0) for each in (first, second))
        for key in COMPARED:
            drawn[key].append((b[key].value or 0) - (a[key].value or 0))
    for key, values in drawn.items():
        each = found.differences[key]
        classes = 1 if key == "accuracy" else 3
        error, freedom = np.std(values, ddof=1) * np.sqrt(20 / (20 - classes)), 20 - classes
        assert each.difference is not None
        wanted = each.difference + error * stats.t.ppf([0.025, 0.975], freedom)
        assert (each.low, each.high) == pytest.approx(wanted, abs=1e-6)
        p_value = 2 * stats.t.sf(abs(each.difference) / error, freedom)
        assert each.p_value == pytest.approx(max(2 / 41, p_value), abs=1e-6)


@given(st.floats(-0.5, 0.5), st.floats(0, 0.3), st.integers(2, 60), st.integers(0, 99))
def test_p_value_and_interval_agree(difference: float, spread: float, patients: int, seed: int) -> None:
    drawn = difference + spread * np.random.default_rng(seed).normal(size=200)
    found = Difference.of(0.5, 0.5 + difference, drawn, patients)
    assert found.low is not None
    assert found.high is not None
    assert found.p_value is not None
    assert (found.p_value < 0.05) == (not found.low <= 0 <= found.high)
    assert found.low - 1e-9 <= difference <= found.high + 1e-9


def test_a_worse_model_is_found_and_an_equal_one_is_not() -> None:
    first = make_predictions(600, skill=3, ties=False)
    worse = compare(first, another(first, 4.0))
    assert worse.mcnemar_p < 0.001
    accuracy = worse.differences["accuracy"]
    assert accuracy.high is not None
    assert accuracy.high < 0
    assert accuracy.p_value == pytest.approx(2 / 1001)
    same = compare(first, another(first, 0.0), resamples=100)
    assert (same.only_first, same.only_second, same.mcnemar_p) == (0, 0, 1)
    assert all((d.difference, d.low, d.high, d.p_value) == (0, 0, 0, 1) for d in same.differences.values())


def test_exchanging_the_models_turns_the_sign() -> None:
    first = make_predictions(90, ties=False)
    second = replace(first, logits=another(first, 1.0).logits)
    there, back = compare(first, second, resamples=60), compare(second, first, resamples=60)
    assert (there.only_first, there.mcnemar_p) == (back.only_second, back.mcnemar_p)
    for key in COMPARED:
        one, other = there.differences[key], back.differences[key]
        assert (one.low, one.p_value) == (pytest.approx(-(other.high or 0)), pytest.approx(other.p_value))


def test_cases_that_do_not_match_are_named() -> None:
    first = make_predictions(20, unknown=0)
    with refused(ValueError):
        compare(first, first.subset(range(19)))
    with refused(ValueError):
        compare(first.subset(range(12)), first)
    with refused(ValueError):
        compare(first.subset([4, 4]), first)
    with refused(ValueError):
        compare(first, replace(first, label=np.r_[(first.label[0] + 1) % 3, first.label[1:]]))
    with refused(ValueError):
        compare(first, replace(first, classes=("a", "b", "c")))


def test_little_to_compare() -> None:
    first = make_predictions(20, unknown=0)
    unknown = replace(first, label=np.full(20, -1))
    nothing = compare(unknown, unknown, resamples=10)
    assert (nothing.n, nothing.mcnemar_p, nothing.differences["accuracy"].difference) == (0, 1, None)
    one = replace(first, patient=["one"] * 20)
    alone = compare(one, another(one, 1.0), resamples=10).differences["accuracy"]
    assert alone.difference is not None
    assert (alone.low, alone.high, alone.p_value) == (None, None, None)


def test_a_score_of_concepts_is_compared_too() -> None:
    first = make_predictions(90, ties=False)
    second = replace(first, presence=np.clip(np.random.default_rng(2).normal(first.presence, 0.3), 0, 1))
    found = paired_differences(first, second, ["mean_auroc", "explanation_error_l2"], resamples=40, seed=2)
    random, group = np.random.default_rng(2), first.groups()
    drawn: dict[str, list[float]] = {key: [] for key in found}
    for _ in range(40):
        rows = [i for p in random.integers(30, size=30) for i in np.flatnonzero(group == p)]
        a, b = (score(each.subset(rows), resamples=0) for each in (first, second))
        for key in found:
            drawn[key].append((b[key].value or 0) - (a[key].value or 0))
    for key, each in found.items():
        assert each.second == score(second, resamples=0)[key].value
        reach = np.std(drawn[key], ddof=1) * np.sqrt(30 / 29) * stats.t.ppf(0.975, 29)
        assert each.difference is not None
        assert (each.low, each.high) == pytest.approx((each.difference - reach, each.difference + reach), abs=1e-6)


def others(first: Predictions, number: int) -> list[Predictions]:
    """Models that err each in its own way, their cases in another order."""
    random = np.random.default_rng(5)
    noisy = (replace(first, logits=first.logits + 2 * random.normal(size=first.logits.shape)) for _ in range(number))
    return [each.subset(random.permutation(len(each))) for each in noisy]


def test_the_mean_of_models_and_what_all_get_wrong() -> None:
    first = make_predictions(150, ties=False)
    models = [first, *others(first, 3)]
    found = ensemble(models, resamples=50)
    known = np.flatnonzero(first.label >= 0)
    matched = [each.subset([list(each.name).index(name) for name in first.name]).subset(known) for each in models]
    label = first.label[known]
    wrong = np.array([each.logits.argmax(1) != label for each in matched])
    assert found.member_accuracy == pytest.approx(
        np.mean([score(each, resamples=0)["accuracy"].value for each in models])
    )
    assert (found.models, found.n) == (4, len(known))
    assert (found.all_wrong, found.any_wrong) == (wrong.all(0).sum(), wrong.any(0).sum())
    assert 0 < found.all_wrong < found.any_wrong
    mean = sum(each.probabilities() for each in matched)
    assert found.scores["accuracy"].value == pytest.approx((mean.argmax(1) == label).mean())
    assert found.scores["accuracy"].low is not None
    assert found.patient_errors is not None
    assert found.patient_errors.wrong == found.all_wrong
    json.dumps(found.as_dict())


def test_equal_models_are_as_good_as_one() -> None:
    first = make_predictions(90, ties=False)
    found = ensemble([first, first], resamples=20)
    assert found.scores["balanced_accuracy"] == score(first, resamples=20)["balanced_accuracy"]
    assert found.all_wrong == found.any_wrong


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_probabilities_of_any_sharpness_have_a_mean(scale: float) -> None:
    first = make_predictions(60, unknown=0)
    sharp = replace(first, logits=first.logits * scale)
    assert ensemble([sharp, sharp], resamples=0).scores["accuracy"] == score(sharp, resamples=0)["accuracy"]


def test_nothing_known_is_no_error() -> None:
    unknown = replace(make_predictions(30), label=np.full(30, -1))
    found = ensemble([unknown, unknown], resamples=10)
    assert (found.n, found.member_accuracy, found.scores["accuracy"].value, found.patient_errors) == (
        0,
        None,
        None,
        None,
    )
