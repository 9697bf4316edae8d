"""The readers beside one process."""

from benchmarks.reading import time_reading
from benchmarks.timing import Effort


def test_every_kind_is_read_both_ways() -> None:
    rows = time_reading(Effort(rounds=1, seconds=0.01, turn=0.01), files=8)
    assert len(rows) == 4
    for row in rows:
        assert row.here > 0
        assert row.ratio == row.readers / row.here
