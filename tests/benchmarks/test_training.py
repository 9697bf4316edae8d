"""Steps of a run beside bare steps: what is counted, and that a real run is measured."""

import pytest

from benchmarks import training
from benchmarks.training import _Turns, time_training
from parsecaps.config import load_config
from parsecaps.training import Progress, loop


def _at(epoch: int, batch: int) -> Progress:
    return Progress(epoch, 3, batch, 10, 0.0, 0.0, 0.0, 0.0)


def test_only_steps_within_an_epoch_count_and_bare_steps_get_as_much_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(training.time, "perf_counter", lambda: clock[0])

    def bare() -> None:
        clock[0] += 0.5

    turns = _Turns(bare)
    for passed, epoch, batch in ((7.0, 1, 2), (3.0, 1, 5), (2.0, 1, 7), (50.0, 2, 1), (4.0, 2, 5), (9.0, 3, 1)):
        clock[0] += passed
        turns.count(_at(epoch, batch))
    assert (turns.seconds, turns.steps) == (9.0, 9)  # 3 + 2 + 4 s; batches 2 to 7 of the first, 1 to 5 of the second
    assert (turns.bare_seconds, turns.bare_steps) == (9.0, 18)


def test_a_real_run_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "_REPORT_SECONDS", 0.0)  # a report after each step, however fast the machine
    config = load_config(None, ["data.path=phantom:n=48,size=32", "model.preset=tiny", "model.image_size=32"])
    speed = time_training(config.change("training", batch_size=4), epochs=3)
    assert (speed.preset, speed.image_size, speed.batch_size) == ("tiny", 32, 4)
    assert speed.steps_in_run == 18  # 7 batches of 31 images, 3 times, without the first
    assert speed.bare_steps > 0
    assert 0.05 < speed.share < 5
