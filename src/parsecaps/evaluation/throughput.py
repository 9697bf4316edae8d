"""Images per second of a model and of a plain CNN of equal FLOPs, as they are and compiled."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from parsecaps.evaluation.equal_cnn import cnn_of_equal_flops
from parsecaps.evaluation.timing import Effort, MatmulPeak, Task, best_seconds
from parsecaps.functional import class_loss
from parsecaps.models.parsecaps import ParseCaps
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_flops

Phase = Literal["forward", "training"]
Mode = Literal["eager", "compiled"]

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


def _task(model: PretrainedModel, image: Tensor, phase: Phase, mode: Mode) -> Task:
    label = torch.arange(len(image)) % model.num_classes
    network: Callable[..., object] = model
    if mode == "compiled":
        torch.compiler.reset()
        network = torch.compile(model, dynamic=False)
    return forward_task(model, network, image) if phase == "forward" else training_task(model, network, image, label)


def forward_task(model: nn.Module, network: Callable[..., object], image: Tensor) -> Task:
    """A pass in evaluation mode; `network` is the model or its compiled form."""

    def task() -> None:
        model.eval()
        with torch.inference_mode():
            network(image)

    return task


def training_task(model: nn.Module, network: Callable[..., object], image: Tensor, label: Tensor) -> Task:
    """One step of AdamW at a learning rate of 0, so that turns do not differ."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0)

    def task() -> None:
        model.train()
        optimizer.zero_grad()
        loss = class_loss(network(image).logits, label)  # type: ignore[attr-defined]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return task


def _images(model: PretrainedModel, batch_size: int) -> Tensor:
    shape = (batch_size, model.in_channels, model.image_size, model.image_size)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))
