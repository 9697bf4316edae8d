"""How each routing grows with the number of children (Sec. 3.2, complexity analysis): time, multiply-adds, memory.

    python -m benchmarks.complexity "saa to classes" 1024

makes one forward and backward pass of a routing over so many children in a new process, and prints the memory it took.

A cell brings children on a grid to parents on a grid of half the width, so parents grow with the children. A layer to
classes has ten parents, whatever the number of children.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table
from torch import Tensor, nn

from benchmarks.tables import plain_table
from benchmarks.timing import Effort, best_seconds, in_new_process, resident
from parsecaps.functional import squash
from parsecaps.nn import ROUTINGS
from parsecaps.nn.routing import RoutingConfig
from parsecaps.paper.routing_speed import count_multiply_adds
from parsecaps.rivals.ar_capsnet import AttentionClassCaps
from parsecaps.rivals.class_capsules import ClassCapsules, ClassRoutingConfig
from parsecaps.rivals.three_layer import SAAClassCaps
from parsecaps.types import silent

SIZES = (64, 256, 1024, 4096)  # children
_DIM, _CLASSES, _TYPES = 16, 10, 4


def _cell(routing: str, radius: int | None, n: int) -> nn.Module:
    config = RoutingConfig(routing=routing, radius=radius)
    return ROUTINGS[routing](width=isqrt(n), in_dim=_DIM, out_dim=_DIM, stride=2, config=config)


def _on_map(kind: Callable[..., nn.Module], n: int) -> nn.Module:
    return kind(width=isqrt(n // _TYPES), types=_TYPES, in_dim=_DIM, classes=_CLASSES, dim=_DIM)


def _with_votes(routing: str, n: int) -> nn.Module:
    config = ClassRoutingConfig(capsules=n, classes=_CLASSES, dim=_DIM)
    return ClassCapsules(in_dim=_DIM, routing=routing, config=config)


ROUTINGS_MEASURED: dict[str, Callable[[int], nn.Module]] = {
    "saa cell, all children": partial(_cell, "saa", None),
    "saa cell, radius 2": partial(_cell, "saa", 2),
    "dynamic cell, radius 2": partial(_cell, "dynamic", 2),
    "saa to classes": partial(_on_map, SAAClassCaps),
    "attention to classes": partial(_on_map, partial(AttentionClassCaps, dropout=0.0)),
    "self-attention to classes": partial(_with_votes, "self-attention"),
    "dynamic to classes": partial(_with_votes, "dynamic"),
}


@dataclass(frozen=True)
class RoutingGrowth:
    """What one image costs with each number of children, and the exponents of a power law through the sizes.

    `seconds` are of the fastest forward pass, `memory` is the growth of a new process in a forward and backward
    pass, where it was measured.
    """

    routing: str
    children: list[int]
    seconds: list[float]
    multiply_adds: list[int]
    memory: list[int]

    @property
    def measured(self) -> list[str]:
        return [name for name in MEASURED if getattr(self, name)]

    @property
    def exponents(self) -> dict[str, float | None]:
        """None where fewer than two values can be told from 0."""
        return {name: exponent(self.children, getattr(self, name), _LEAST.get(name, 0)) for name in self.measured}

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "exponents": self.exponents}


MEASURED = {"seconds": "time, ms", "multiply_adds": "multiply-adds, million", "memory": "memory, MB"}
_LEAST = {"memory": 5e5}  # what a process grows by anyway
_UNITS = {"seconds": 1e-3, "multiply_adds": 1e6, "memory": 1e6}


def exponent(children: Sequence[int], values: Sequence[float], least: float = 0) -> float | None:
    """The exponent of the power law nearest to the values above the `least`, by least squares of the logarithms.

    >>> round(exponent([64, 256, 1024], [0.0, 3 * 256**1.5, 3 * 1024**1.5]), 6)
    1.5
    """
    told = [(n, value) for n, value in zip(children, values, strict=True) if value > least]
    if len(told) < 2:
        return None
    slope, _ = np.polyfit(*np.log(told).T, 1)
    return float(slope)


def measure_growth(
    effort: Effort, *, sizes: Sequence[int] = SIZES, memory: bool = True, log: Callable[[str], None] = silent
) -> list[RoutingGrowth]:
    """Measure every routing with every number of children; routings take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in ROUTINGS_MEASURED}
    work: dict[str, list[int]] = {name: [] for name in ROUTINGS_MEASURED}
    taken: dict[str, list[int]] = {name: [] for name in ROUTINGS_MEASURED}
    for n in sizes:
        log(f"{n} children")
        u = children(n)
        modules = {name: build(n).eval() for name, build in ROUTINGS_MEASURED.items()}
        for name, best in best_seconds(
            {name: partial(_forward, each, u) for name, each in modules.items()}, effort
        ).items():
            seconds[name].append(best)
            work[name].append(count_multiply_adds(modules[name], u))
            if memory:
                taken[name].append(in_new_process("benchmarks.complexity", name, str(n))["growth"])
    return [RoutingGrowth(name, list(sizes), seconds[name], work[name], taken[name]) for name in ROUTINGS_MEASURED]


def children(n: int) -> Tensor:
    """Capsules of random directions: (1, n, 16)."""
    return squash(torch.randn(1, n, _DIM, generator=torch.Generator().manual_seed(0)), "quadratic")


def growth_tables(growths: Sequence[RoutingGrowth]) -> list[Table]:
    """For each thing measured the values and the exponent of each routing."""
    tables = []
    for key in growths[0].measured:
        columns = ("routing", *(f"{n:,} children" for n in growths[0].children), "grows as n to the")
        table = plain_table(f"{MEASURED[key]}, one image", *columns)
        for growth in growths:
            values = [f"{value / _UNITS[key]:,.2f}" for value in getattr(growth, key)]
            table.add_row(growth.routing, *values, _power(growth.exponents[key]))
        tables.append(table)
    return tables


def draw_growth(growths: Sequence[RoutingGrowth], path: Path) -> None:
    """One panel for each thing measured, on logarithmic axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4), layout="constrained")
    keys = growths[0].measured
    for axes, key in zip(figure.subplots(1, len(keys)), keys, strict=True):
        for growth in growths:
            least = _LEAST.get(key, 0)
            values = [value / _UNITS[key] if value > least else np.nan for value in getattr(growth, key)]
            style = "o-" if "cell" in growth.routing else "s--"
            axes.plot(growth.children, values, style, label=f"{growth.routing} ({_power(growth.exponents[key])})")
        axes.set(xscale="log", yscale="log", xlabel="children", title=MEASURED[key])
        axes.set_xticks(growths[0].children, [f"{n:,}" for n in growths[0].children])
        axes.minorticks_off()
        axes.legend(fontsize=6, title="exponent in brackets", title_fontsize=6)
    figure.savefig(path, dpi=150)


def _power(exponent: float | None) -> str:
    return "-" if exponent is None else f"{exponent:.2f}"


@torch.inference_mode()
def _forward(module: nn.Module, u: Tensor) -> None:
    module(u)


def _memory_of_a_step(name: str, n: int) -> int:
    build = ROUTINGS_MEASURED[name]
    build(_TYPES * _TYPES)(children(_TYPES * _TYPES)).sum().backward()  # loads what torch loads on first use
    module, u = build(n), children(n)
    before = resident("VmRSS")
    module(u).sum().backward()
    return max(0, resident("VmHWM") - before)


if __name__ == "__main__":
    print(json.dumps({"growth": _memory_of_a_step(sys.argv[1], int(sys.argv[2]))}))
