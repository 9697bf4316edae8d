"""Images per second of a model and of a plain CNN of equal FLOPs, as they are and compiled."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from benchmarks.equal_cnn import cnn_of_equal_flops
from benchmarks.timing import Effort, MatmulPeak, Task, best_seconds
from parsecaps.functional import class_loss
from parsecaps.models.parsecaps import ParseCaps
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_flops
from parsecaps.types import Output

Phase = Literal["forward", "training"]
Mode = Literal["eager", "compiled"]
Network = Callable[[Tensor], Output]

PRESETS = ("medical", "digits", "tiny")
BATCH_SIZES = (1, 32)
NUM_CLASSES = 10
_WORK: dict[Phase, int] = {"forward": 1, "training": 3}  # a backward pass costs about two forward passes


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
