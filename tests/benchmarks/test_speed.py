"""Throughput, the CNN of equal FLOPs, and memory: on the smallest preset, for the form of the result."""

import json

import pytest

from benchmarks import speed
from benchmarks.equal_cnn import cnn_of_equal_flops
from benchmarks.memory import measure_memory
from benchmarks.speed import SpeedBench
from benchmarks.throughput import time_presets
from benchmarks.timing import Effort, MatmulPeak
from parsecaps.models import ParseCaps
from parsecaps.models.summary import count_flops

ONE_ROUND = Effort(rounds=1, seconds=0.0, turn=0.0)


@pytest.mark.parametrize("preset", ["medical", "digits", "tiny"])
def test_the_cnn_costs_the_same(preset: str) -> None:
    model = ParseCaps.from_preset(preset, num_classes=10)
    assert count_flops(cnn_of_equal_flops(model)) == pytest.approx(count_flops(model), rel=0.05)


def test_every_model_phase_and_batch_is_measured() -> None:
    peak = MatmulPeak(width=64)
    rows = list(time_presets(["tiny"], effort=ONE_ROUND, peak=peak, compiled=False, batch_sizes=(1, 2)))
    measured = {(row.model, row.phase, row.batch_size) for row in rows}
    assert len(rows) == len(measured) == 8
    for row in rows:
        assert row.mode == "eager"
        work = 3 if row.phase == "training" else 1
        assert row.flops_per_second == pytest.approx(work * row.flops * row.images_per_second)
    assert peak.flops_per_second > 0


def test_memory_of_a_step() -> None:
    memory = measure_memory("tiny", batch_size=128)
    activations = 4 * 128 * 16 * 16 * (8 + 8 + 16 + 16)  # the outputs of the initial block's convolutions alone
    assert activations < memory.growth < 1e9


def test_a_memory_measurement_that_fails_says_why() -> None:
    with pytest.raises(OSError, match="unknown"):
        measure_memory("tinny")


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "compile_problem", lambda: "no compiler")
    monkeypatch.setattr(speed, "entmax_package", lambda: None)
    bench = SpeedBench(["tiny"])
    assert not bench.compiled
    assert len(bench.remarks) == 2
    assert all("\n" not in remark for remark in bench.remarks)


def test_the_numbers_are_ready_for_json() -> None:
    bench = SpeedBench(["tiny"], quick=True, compiled=False)
    bench.peak = MatmulPeak(width=64)
    rows = list(time_presets(["tiny"], effort=ONE_ROUND, peak=bench.peak, compiled=False, batch_sizes=(1,)))
    stored = json.loads(json.dumps(bench.as_dict([], rows, [])))
    assert stored["throughput"][0]["share_of_peak"] > 0
