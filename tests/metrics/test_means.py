import numpy as np
import pytest

from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.means import means


@pytest.fixture
def values() -> np.ndarray:
    random = np.random.default_rng(3)
    values = random.random((30, 3))
    values[random.random((30, 3)) < 0.3] = np.nan
    return values


GROUP = np.repeat(np.arange(15), 2)


def test_the_intervals_are_those_of_copied_cases(values: np.ndarray) -> None:
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


def test_what_is_not_there_has_no_score() -> None:
    values = np.full((4, 2), np.nan)
    values[:2, 1] = 0.25
    empty, lone = means(values, np.zeros(4, int), resamples=20).scores()
    assert (empty.value, empty.n) == (None, 0)
    assert (lone.value, lone.low, lone.n) == (0.25, None, 2)  # one patient
    assert means(values, np.arange(4), resamples=20).mean().value == 0.25
    assert means(values[:, :1], np.arange(4), resamples=20).mean().value is None
