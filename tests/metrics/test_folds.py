import numpy as np
import pytest

from parsecaps.metrics.folds import FoldScores, over_folds
from parsecaps.metrics.score import Score


def fold(**values: float | None) -> FoldScores:
    return FoldScores("fold", 10, 5, 1.0, {key: Score(value, None, None, 10) for key, value in values.items()})


def test_mean_and_deviation_leave_out_what_is_not_defined() -> None:
    found = over_folds([fold(accuracy=0.8, ece=0.1), fold(accuracy=0.9, ece=None), fold(accuracy=0.6, ece=None)])
    assert found["accuracy"] == pytest.approx((np.mean([0.8, 0.9, 0.6]), np.std([0.8, 0.9, 0.6], ddof=1), 3))
    assert found["ece"] == (0.1, None, 1)
    assert over_folds([]) == {}
    assert over_folds([fold(ece=None)]) == {}
