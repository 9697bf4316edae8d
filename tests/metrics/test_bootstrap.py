import numpy as np
import pytest

from parsecaps.metrics import bootstrap as resampling
from parsecaps.metrics.bootstrap import percentile_interval, resampled_weights, spread_over_patients


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
    monkeypatch.setattr(resampling, "_CELLS", 7 * 50)
    blocks = list(resampled_weights(group, 33, seed=4))
    assert [block.shape[1] for block in blocks] == [7, 7, 7, 7, 5]
    assert np.array_equal(np.concatenate(blocks, axis=1), whole[0])
    assert list(resampled_weights(np.empty(0, dtype=np.int64), 5, seed=0)) == []


def test_an_interval_needs_values_and_several_patients() -> None:
    assert percentile_interval(np.array([np.nan, np.nan])) is None
    group = np.array([0, 0, 1])
    assert not spread_over_patients(group, np.array([True, True, False]))
    assert spread_over_patients(group, np.array([True, False, True]))
    assert not spread_over_patients(group, np.array([False, False, False]))


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
