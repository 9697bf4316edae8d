"""The whole measurement of `parsecaps bench`: entmax, throughput, the matrix-multiply peak, and memory."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch

from benchmarks.entmax_speed import EntmaxTime, entmax_package, time_entmax
from benchmarks.memory import Memory, measure_memory
from benchmarks.throughput import PRESETS, Throughput, compile_problem, time_presets
from benchmarks.timing import QUICK, Effort, MatmulPeak
from parsecaps.models.parsecaps import ParseCaps

__all__ = ["PRESETS", "SpeedBench"]


class SpeedBench:
    """The parts of the bench, to be run in any order; `remarks` says what had to be left out, and why."""

    def __init__(self, presets: Sequence[str] = PRESETS, *, quick: bool = False, compiled: bool = True) -> None:
        for preset in presets:
            ParseCaps.from_preset(preset, num_classes=2)  # an unknown name is an error now, not in ten minutes
        self.presets = tuple(presets)
        self.effort = QUICK if quick else Effort()
        self.peak = MatmulPeak()
        self.remarks: list[str] = []
        problem = compile_problem() if compiled else None
        self.compiled = compiled and problem is None
        if problem:
            self.remarks.append(f"torch.compile does not work here, so only eager was measured: {problem}")
        if entmax_package() is None:
            self.remarks.append("the entmax package is not installed (pip install entmax), so it was left out")

    @property
    def machine(self) -> str:
        """What it runs on."""
        processor = platform.processor() or platform.machine()
        return f"torch {torch.__version__}, {processor}, {torch.get_num_threads()} threads"

    def entmax(self) -> list[EntmaxTime]:
        """Times of entmax and its peers, forward and backward."""
        return time_entmax(self.effort)

    def throughput(self, log: Callable[[str], None] = lambda line: None) -> list[Throughput]:
        """Each preset and its CNN; measures the peak as well."""
        options: dict[str, Any] = {"effort": self.effort, "peak": self.peak, "compiled": self.compiled}
        return list(time_presets(self.presets, **options, log=log))

    def memory(self) -> list[Memory]:
        """A training step of the first preset and of its CNN."""
        return [measure_memory(self.presets[0], plain=plain) for plain in (False, True)]

    def as_dict(
        self, entmax: Sequence[EntmaxTime], throughput: Sequence[Throughput], memory: Sequence[Memory]
    ) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        peak = self.peak.flops_per_second
        speeds = [
            {**asdict(row), "flops_per_second": row.flops_per_second, "share_of_peak": row.flops_per_second / peak}
            for row in throughput
        ]
        return {
            "machine": self.machine,
            "peak_flops_per_second": peak,
            "entmax": [asdict(row) for row in entmax],
            "throughput": speeds,
            "memory": [{**asdict(row), "growth": row.growth} for row in memory],
            "remarks": self.remarks,
        }
