"""The machine's peak, and how to measure on a machine that is never quiet, which the package brings along."""

import time

import torch

from parsecaps.paper.timing import QUICK, Effort, Task, best_seconds, in_new_process, resident

__all__ = ["MATMUL_WIDTH", "QUICK", "Effort", "MatmulPeak", "Task", "best_seconds", "in_new_process", "resident"]

MATMUL_WIDTH = 2048


class MatmulPeak:
    """The machine's peak: float32 products of two square matrices, measured between the turns of other tasks.

    Call it as a task; `flops_per_second` is that of the fastest call so far.
    """

    def __init__(self, width: int = MATMUL_WIDTH) -> None:
        self.width = width
        self.a, self.b = torch.rand(2, width, width).unbind()
        self.best = float("inf")

    def __call__(self) -> None:
        start = time.perf_counter()
        torch.mm(self.a, self.b)
        self.best = min(self.best, time.perf_counter() - start)

    @property
    def flops_per_second(self) -> float:
        return 2 * self.width**3 / self.best
