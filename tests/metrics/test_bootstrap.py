import numpy as np
import pytest
from scipy import stats

from parsecaps.metrics import bootstrap, means
from parsecaps.metrics.bootstrap import POSITIVE, SHARE, SIGNED_SHARE, interval, resampled_weights
from tests.messages import refused

GROUP = np.repeat(np.arange(15), 2)


@pytest.fixture
def values() -> np.ndarray:
    random = np.random.default_rng(3)
    values = random.random((30, 3))
    values[random.random((30, 3)) < 0.3] = np.nan
    return values


def test_patients_go_with_all_their_images() -> None:
    group = np.array([0, 0, 1, 2, 2, 2])
    weights = next(resampled_weights(group, 400, seed=0))
    assert weights.shape == (6, 400)
    assert (weights[0] == weights[1]).all()
    assert (weights[3] == weights[5]).all()
    per_patient = weights[[0, 2, 3]]
    assert (per_patient.sum(0) == 3).all()
    assert per_patient.mean(1) == pytest.approx([1, 1, 1], abs=0.15)
    assert (per_patient == 0).mean() == pytest.approx((2 / 3) ** 3, abs=0.05)


def test_blocks_do_not_change_the_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    group = np.arange(50) // 2
    whole = list(resampled_weights(group, 33, seed=4))
    monkeypatch.setattr(bootstrap, "_CELLS", 7 * 50)
    blocks = list(resampled_weights(group, 33, seed=4))
    assert [block.shape[1] for block in blocks] == [7, 7, 7, 7, 5]
    assert np.array_equal(np.concatenate(blocks, axis=1), whole[0])
    assert list(resampled_weights(np.empty(0, dtype=np.int64), 5, seed=0)) == []


def test_an_interval_needs_values_and_several_patients() -> None:
    drawn = np.linspace(0.4, 0.6, 50)
    assert interval(0.5, np.full(9, np.nan), 5) is None
    assert interval(0.5, drawn, 1) is None
    assert interval(0.5, drawn, 3, means=3) is None
    assert interval(0.5, np.append(drawn, np.nan), 4, means=3) == interval(0.5, drawn, 4, means=3)


def test_intervals_are_students_t_with_the_standard_error_of_the_resamples() -> None:
    """For a mean of patients, the textbook interval: the spread of resamples needs the factor n / (n - 1)."""
    random = np.random.default_rng(2)
    values = random.normal(0.1, 0.2, size=12)
    drawn = np.concatenate([values @ w / 12 for w in resampled_weights(np.arange(12), 200_000, 0)])
    wanted = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert interval(values.mean(), drawn, 12, bounds=SIGNED_SHARE) == pytest.approx(tuple(wanted), abs=2e-3)


@pytest.mark.parametrize("bounds", [SHARE, POSITIVE, SIGNED_SHARE])
def test_an_interval_stays_within_its_bounds_and_has_its_value(bounds: tuple[float, float]) -> None:
    random = np.random.default_rng(0)
    for value in (0.0, 1e-13, 0.01, 0.5, 0.99, 1 - 1e-13, 1.0):
        for spread in (0.0, 1e-3, 0.3):
            low, high = interval(value, value + spread * random.normal(size=99), 2, bounds=bounds) or (9, 9)
            assert bounds[0] <= low <= value + 1e-12
            assert value - 1e-12 <= high <= bounds[1]


def test_a_score_beyond_its_bounds_is_refused_unless_it_is_rounding() -> None:
    assert interval(1 + 1e-7, np.full(9, 1 + 1e-7), 5) == interval(1.0, np.ones(9), 5)
    with refused(ValueError):
        interval(-0.2, np.linspace(-0.3, 0, 9), 5)


def test_all_right_leaves_room_for_doubt() -> None:
    for patients in (2, 5, 50):
        exact = stats.binomtest(patients, patients).proportion_ci(0.95, "exact")
        assert interval(1.0, np.ones(50), patients) == pytest.approx((exact.low, 1))
        assert interval(0.0, np.zeros(50), patients) == pytest.approx((0, 1 - exact.low))


@pytest.mark.parametrize(("patients", "share"), [(10, 0.7), (20, 0.8), (20, 0.9)])
def test_intervals_hold_the_truth_as_often_as_they_say(patients: int, share: float) -> None:
    """Three images for each patient, alike more often than not; percentiles hold it in 90, 91 and 89 %."""
    random = np.random.default_rng(1)
    group, held = np.arange(3 * patients) // 3, 0
    for trial in range(400):
        easy = random.beta(2 * share, 2 * (1 - share), size=patients)
        right = random.random(3 * patients) < easy[group]
        [found] = means(right[:, None].astype(float), group, resamples=300, seed=trial).scores()
        held += (found.low or 0) <= share <= (found.high or 0)
    assert 0.935 <= held / 400 <= 0.985


def test_the_intervals_of_means_are_those_of_copied_cases(values: np.ndarray) -> None:
    found = means(values, GROUP, resamples=40, seed=5)
    np.testing.assert_allclose(found.value, np.nanmean(values, axis=0))
    (weights,) = resampled_weights(GROUP, 40, 5)
    for r in range(40):
        copied = np.repeat(values, weights[:, r].astype(int), axis=0)
        np.testing.assert_allclose(found.draws[:, r], np.nanmean(copied, axis=0))
    score = found.scores()[1]
    patients = len(np.unique(GROUP[np.isfinite(values[:, 1])]))
    assert (score.low, score.high) == interval(found.value[1], found.draws[1], patients)
    assert score.n == np.isfinite(values[:, 1]).sum()


def test_the_mean_over_columns_and_the_ratio(values: np.ndarray) -> None:
    found, other = (means(each, GROUP, resamples=60) for each in (values, (values + 1) / 2))
    mean = found.mean()
    assert mean.value == pytest.approx(np.nanmean(values, axis=0).mean())
    assert (mean.low, mean.high) == interval(found.value.mean(), found.draws.mean(0), 15)
    ratio = found.over(other)
    np.testing.assert_allclose(ratio.value, np.nanmean(values, axis=0) / np.nanmean((values + 1) / 2, axis=0))
    np.testing.assert_allclose(ratio.draws, found.draws / other.draws)
    assert ratio.bounds == POSITIVE


def test_a_mean_over_columns_has_the_patients_of_all_of_them() -> None:
    values = np.full((12, 2), np.nan)
    values[:6, 0], values[6:, 1] = np.arange(6) / 6, np.arange(6) / 6
    found = means(values, np.arange(12), resamples=60)
    assert found.patients.tolist() == [6, 6]
    assert (found.mean().low, found.mean().high) == interval(found.value.mean(), found.draws.mean(0), 12)


def test_a_mean_over_nothing_has_no_score() -> None:
    values = np.full((4, 2), np.nan)
    values[:2, 1] = 0.25
    empty, lone = means(values, np.zeros(4, int), resamples=20).scores()
    assert (empty.value, empty.n) == (None, 0)
    assert (lone.value, lone.low, lone.n) == (0.25, None, 2)  # one patient
    assert means(values, np.arange(4), resamples=20).mean().value == 0.25
    assert means(values[:, :1], np.arange(4), resamples=20).mean().value is None
