import pytest

from benchmarks.exported import time_exported


def test_both_answer_and_the_ratio_is_that_of_their_times() -> None:
    speed = time_exported(32, preset="tiny", turns=3)
    assert 0 < speed.megabytes < 1
    assert min(speed.eager, speed.runtime, speed.write_seconds, speed.open_seconds) > 0
    assert speed.ratio == pytest.approx(speed.eager / speed.runtime)
