"""What the network costs: entmax beside its peers, presets beside a plain CNN of equal FLOPs, a training step's memory.

    python -m benchmarks.speed ParseCaps medical 32

makes one training step of a preset, or of the CNN of equal FLOPs, and prints the memory that it took.
"""

import importlib
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from benchmarks.timing import QUICK, Effort, MatmulPeak, Task, best_seconds, in_new_process, resident
from parsecaps.functional import class_loss, entmax
from parsecaps.models import ParseCaps, PlainCNN, PretrainedModel
from parsecaps.models.summary import count_flops
from parsecaps.types import Output

Phase = Literal["forward", "training"]
Mode = Literal["eager", "compiled"]
Network = Callable[[Tensor], Output]

PRESETS = ("medical", "digits", "tiny")
BATCH_SIZES = (1, 32)
BATCH_SIZE = 32
NUM_CLASSES = 10
# the couplings of the paper's first two blocks, without a window, and a small case
SHAPES: tuple[tuple[int, ...], ...] = ((64, 196, 784), (64, 49, 196), (64, 64, 64))
OURS = "parsecaps entmax, alpha 1.5"
_WORK: dict[Phase, int] = {"forward": 1, "training": 3}  # a backward pass costs about two forward passes
_STEM, _LAYERS = (32, 64, 64, 64), (64, 96, 96)  # the proportions that are kept in a CNN of equal FLOPs
_TRIALS = 12


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


@dataclass(frozen=True)
class Throughput:
    """One model in one phase: images and FLOPs per second, best of several turns.

    `training` is forward, cross-entropy, backward and AdamW, counted as three forward passes.
    """

    preset: str
    model: str
    phase: Phase
    mode: Mode
    batch_size: int
    flops: int
    images_per_second: float

    @property
    def flops_per_second(self) -> float:
        return self.images_per_second * self.flops * _WORK[self.phase]


def time_presets(
    presets: Sequence[str],
    *,
    effort: Effort,
    peak: MatmulPeak,
    compiled: bool = True,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    log: Callable[[str], None] = lambda line: None,
) -> Iterator[Throughput]:
    """Measure each preset beside its CNN, eager and compiled taking turns with the CNN and the matrix product.

    The decoder is left out: the CNN has none.
    """
    for preset in presets:
        model = ParseCaps.from_preset(preset, num_classes=NUM_CLASSES)
        rivals: dict[str, PretrainedModel] = {"ParseCaps": model, "PlainCNN": cnn_of_equal_flops(model)}
        flops = {name: count_flops(rival) for name, rival in rivals.items()}
        modes: tuple[Mode, ...] = ("eager", "compiled") if compiled else ("eager",)
        phases: tuple[Phase, ...] = ("forward", "training")
        for phase in phases:
            for batch_size in batch_sizes:
                log(f"{preset}: {phase}, batch {batch_size}")
                image = _images(model, batch_size)
                if compiled:
                    torch.compiler.reset()  # what was compiled for another batch is not needed again
                tasks: dict[str, Task] = {"matmul": peak}
                keys: dict[str, tuple[str, Mode]] = {}
                for name, rival in rivals.items():
                    for mode in modes:
                        keys[f"{name} {mode}"] = (name, mode)
                        tasks[f"{name} {mode}"] = _task(rival, image, phase, mode)
                best = best_seconds(tasks, effort)
                for key, (name, mode) in keys.items():
                    speed = batch_size / best[key]
                    yield Throughput(preset, name, phase, mode, batch_size, flops[name], speed)


def compile_problem() -> str | None:
    """Why `torch.compile` does not work here (for instance, no C++ compiler), in one line; None if it does."""
    try:
        torch.compile(lambda x: x.sin() + 1)(torch.zeros(8))
    except Exception as error:  # whatever the compiler stumbles over
        return (str(error).strip().splitlines() or [type(error).__name__])[0]
    return None


def forward_task(model: nn.Module, network: Network, image: Tensor) -> Task:
    """A pass in evaluation mode; `network` is the model or its compiled form."""
    model.eval()

    def task() -> None:
        with torch.inference_mode():
            network(image)

    return task


def training_task(model: nn.Module, network: Network, image: Tensor, label: Tensor) -> Task:
    """One step of AdamW, at a learning rate of 0 so that all turns do the same."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    def task() -> None:
        optimizer.zero_grad()
        loss = class_loss(network(image).logits, label)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return task


def _task(model: PretrainedModel, image: Tensor, phase: Phase, mode: Mode) -> Task:
    network: Network = model if mode == "eager" else torch.compile(model, dynamic=False)
    if phase == "forward":
        return forward_task(model, network, image)
    return training_task(model, network, image, torch.arange(len(image)) % model.num_classes)


def _images(model: PretrainedModel, batch_size: int) -> Tensor:
    shape = (batch_size, model.in_channels, model.image_size, model.image_size)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def cnn_of_equal_flops(model: PretrainedModel) -> PlainCNN:
    """The `PlainCNN` for the same images, classes and grid whose FLOPs come nearest to the model's without its decoder.

    All widths are scaled by one number, found by bisection; the last layers then take up what rounding left over.
    """
    target = count_flops(model)
    low, high = 0.0, 16.0
    for _ in range(_TRIALS):
        scale = (low + high) / 2
        if count_flops(_scaled(model, scale, scale)) < target:
            low = scale
        else:
            high = scale
    wide, narrow = _scaled(model, low, low), _scaled(model, high, high)
    candidates = [wide, narrow, *(_scaled(model, low, low * k / 4) for k in range(1, 17) if low)]
    return min(candidates, key=lambda cnn: abs(count_flops(cnn) - target))


def _scaled(model: PretrainedModel, stem: float, layers: float) -> PlainCNN:
    config: dict[str, Any] = model.config
    return PlainCNN(
        num_classes=model.num_classes,
        in_channels=model.in_channels,
        image_size=model.image_size,
        grid_width=config["grid_width"],
        stem_channels=tuple(max(1, round(width * stem)) for width in _STEM),
        channels=tuple(max(1, round(width * layers)) for width in _LAYERS),
    )


@dataclass(frozen=True)
class Memory:
    """Resident memory in bytes: before the step, with the model built and torch warm, and at its highest."""

    model: str
    batch_size: int
    before: int
    peak: int

    @property
    def growth(self) -> int:
        return self.peak - self.before


def measure_memory(preset: str = "medical", *, plain: bool = False, batch_size: int = BATCH_SIZE) -> Memory:
    """Start a new Python that makes one step, for a process cannot forget a peak.

    `plain` takes the CNN of equal FLOPs instead of the preset itself.
    """
    kind = "PlainCNN" if plain else "ParseCaps"
    return Memory(**in_new_process("benchmarks.speed", kind, preset, str(batch_size)))


def _step(kind: str, preset: str, batch_size: int) -> Memory:
    model: PretrainedModel = ParseCaps.from_preset(preset, num_classes=NUM_CLASSES)
    if kind == "PlainCNN":
        model = cnn_of_equal_flops(model)
    shape = (batch_size, model.in_channels, model.image_size, model.image_size)
    image, label = torch.rand(shape), torch.arange(batch_size) % NUM_CLASSES
    training_task(model, model, image[:1], label[:1])()  # loads what torch loads on first use
    before = resident("VmRSS")
    training_task(model, model, image, label)()
    return Memory(kind, batch_size, before, resident("VmHWM"))


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


if __name__ == "__main__":
    print(json.dumps(asdict(_step(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
