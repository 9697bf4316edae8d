"""entmax against its peers: softmax of torch, and the `entmax` package where it is installed."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.timing import Effort, Task, best_seconds
from parsecaps.functional import entmax

# the couplings of the paper's first two blocks, without a window, and a small case
SHAPES: tuple[tuple[int, ...], ...] = ((64, 196, 784), (64, 49, 196), (64, 64, 64))
OURS = "parsecaps entmax, alpha 1.5"


@dataclass(frozen=True)
class EntmaxTime:
    """Seconds for forward and backward, and how many times as long as our entmax at alpha 1.5 that is."""

    shape: tuple[int, ...]
    name: str
    seconds: float
    ratio: float


def entmax_peers() -> dict[str, Callable[[Tensor], Tensor]]:
    """What is compared, by name; without the `entmax` package only what comes with torch."""
    peers: dict[str, Callable[[Tensor], Tensor]] = {
        OURS: entmax,
        "parsecaps entmax, alpha 2": partial(entmax, alpha=2.0),
        "parsecaps entmax, alpha 1.3": partial(entmax, alpha=1.3),
        "torch softmax": partial(torch.softmax, dim=-1),
    }
    package = entmax_package()
    if package is not None:
        peers["entmax package, entmax15"] = partial(package.entmax15, dim=-1)
        peers["entmax package, entmax_bisect 1.5"] = partial(package.entmax_bisect, alpha=1.5, dim=-1)
        peers["entmax package, sparsemax"] = partial(package.sparsemax, dim=-1)
    return peers


def entmax_package() -> Any | None:
    """The `entmax` package, or None."""
    try:
        return importlib.import_module("entmax")
    except ImportError:
        return None


def time_entmax(effort: Effort, shapes: Sequence[tuple[int, ...]] = SHAPES) -> list[EntmaxTime]:
    """Forward and backward over the last axis of normal logits, every peer on the same ones."""
    rows = []
    for shape in shapes:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(shape, generator=generator).requires_grad_()
        grad = torch.randn(shape, generator=generator)
        best = best_seconds({name: _both_ways(f, x, grad) for name, f in entmax_peers().items()}, effort)
        rows += [EntmaxTime(shape, name, seconds, seconds / best[OURS]) for name, seconds in best.items()]
    return rows


def _both_ways(function: Callable[[Tensor], Tensor], x: Tensor, grad: Tensor) -> Task:
    return lambda: torch.autograd.grad(function(x), x, grad)
