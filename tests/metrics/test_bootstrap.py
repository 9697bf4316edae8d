import numpy as np
import pytest

from parsecaps.metrics import bootstrap, means
from parsecaps.metrics.bootstrap import percentile_interval, resampled_weights, several_patients

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
    assert percentile_interval(np.array([np.nan, np.nan])) is None
    group = np.array([0, 0, 1])
    assert not several_patients(group, np.array([True, True, False]))
    assert several_patients(group, np.array([True, False, True]))
    assert not several_patients(group, np.array([False, False, False]))


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """Two images per patient, right or wrong together: images resampled alone would give 83 %, not 95."""
    random = np.random.default_rng(1)
    held = 0
    for trial in range(200):
        right = np.repeat(random.random(60) < 0.7, 2)
        group = np.arange(120) // 2
        drawn = np.concatenate([right @ w / w.sum(0) for w in resampled_weights(group, 300, trial)])
        low, high = percentile_interval(drawn) or (0, 0)
        held += low <= 0.7 <= high
    assert 0.89 <= held / 200 <= 0.99


def test_the_intervals_of_means_are_those_of_copied_cases(values: np.ndarray) -> None:
    found = means(values, GROUP, resamples=40, seed=5)
    np.testing.assert_allclose(found.value, np.nanmean(values, axis=0))
    (weights,) = resampled_weights(GROUP, 40, 5)
    for r in range(40):
        copied = np.repeat(values, weights[:, r].astype(int), axis=0)
        np.testing.assert_allclose(found.draws[:, r], np.nanmean(copied, axis=0))
    score = found.scores()[1]
    assert (score.low, score.high) == pytest.approx(tuple(np.percentile(found.draws[1], (2.5, 97.5))))
    assert score.n == np.isfinite(values[:, 1]).sum()


def test_the_mean_over_columns_and_the_ratio(values: np.ndarray) -> None:
    found, other = (means(each, GROUP, resamples=60) for each in (values, values + 1))
    mean = found.mean()
    assert mean.value == pytest.approx(np.nanmean(values, axis=0).mean())
    assert mean.low == pytest.approx(np.percentile(found.draws.mean(0), 2.5))
    ratio = found.over(other)
    np.testing.assert_allclose(ratio.value, np.nanmean(values, axis=0) / np.nanmean(values + 1, axis=0))
    np.testing.assert_allclose(ratio.draws, found.draws / other.draws)


def test_a_mean_over_nothing_has_no_score() -> None:
    values = np.full((4, 2), np.nan)
    values[:2, 1] = 0.25
    empty, lone = means(values, np.zeros(4, int), resamples=20).scores()
    assert (empty.value, empty.n) == (None, 0)
    assert (lone.value, lone.low, lone.n) == (0.25, None, 2)  # one patient
    assert means(values, np.arange(4), resamples=20).mean().value == 0.25
    assert means(values[:, :1], np.arange(4), resamples=20).mean().value is None
