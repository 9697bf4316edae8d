"""Whether the steps of a training have become much slower than they were, as on a machine that others use too."""

from collections import deque
from statistics import median

SLOWER = 10.0
_WARM_UP = 3  # steps that do not count: buffers are made, a compiler may be at work
_WINDOW = 20  # steps behind each median


class Pace:
    """Compares the median of the latest steps with that of the first ones, and says once that they are slow."""

    def __init__(self) -> None:
        self._steps, self._told = 0, False
        self._first: list[float] = []
        self._latest: deque[float] = deque(maxlen=_WINDOW)

    def add(self, seconds: float) -> tuple[float, float] | None:
        """Add the time of a step; gives the median of now and of then, the first time that it is `SLOWER` times."""
        self._steps += 1
        if self._steps <= _WARM_UP or self._told:
            return None
        if len(self._first) < _WINDOW:
            self._first.append(seconds)
            return None
        self._latest.append(seconds)
        now, then = median(self._latest), median(self._first)
        if len(self._latest) < _WINDOW or now < SLOWER * then:
            return None
        self._told = True
        return now, then
