"""What each routing of the three-layer network costs (Tab. 7): time, multiply-adds and memory, alone and in the net.

    python -m parsecaps.paper.routing_speed saa 128 digits

makes one training step of a routing alone and prints the memory that it took.
"""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from parsecaps.functional import margin_loss, squash
from parsecaps.paper.timing import Effort, Task, all_seconds, in_new_process, resident
from parsecaps.rivals.class_capsules import ClassCapsules
from parsecaps.rivals.three_layer import ROUTINGS_COMPARED, ThreeLayerCaps
from parsecaps.types import silent

Phase = Literal["forward", "gradients", "training"]
Scope = Literal["routing", "network"]

PHASES: tuple[Phase, ...] = ("forward", "gradients", "training")
SCOPES: tuple[Scope, ...] = ("routing", "network")
BATCH_SIZES = (1, 128)
OURS = "saa"
# of images a second of SAA routing over those of the other: the routing alone, and the paper's for its network
WANTED = {"dynamic": 3.0, "attention": 1.4}
PUBLISHED = {"dynamic": 387.88 / 252.78, "attention": 387.88 / 277.55}

_CLASSES = 10
_PRESET = "digits"


@dataclass(frozen=True)
class RoutingCost:
    """What does not depend on the machine, for one image, and the peak memory of a training step of the routing alone.

    Multiply-adds are those of matrix products and convolutions. `votes` are the numbers that children say of parents.
    """

    routing: str
    parameters: int
    multiply_adds: int
    network_multiply_adds: int
    couplings: int
    votes: int
    memory: int | None = None


@dataclass(frozen=True)
class RoutingTime:
    """Seconds of a call, the best and the median of all turns, of a routing or a `part` of it.

    The phase `gradients` is forward and backward; `training` has a step of Adam as well.
    """

    routing: str
    part: str
    scope: Scope
    phase: Phase
    batch_size: int
    best: float
    median: float

    @property
    def images_per_second(self) -> float:
        return self.batch_size / self.best


@dataclass(frozen=True)
class RoutingSpeed:
    """All that was measured in one run."""

    threads: int
    costs: tuple[RoutingCost, ...]
    times: tuple[RoutingTime, ...]

    def ratio(self, other: str, scope: Scope, phase: Phase, batch_size: int, *, medians: bool = False) -> float:
        """Images a second of SAA routing over those of another one."""
        found = {
            time.routing: time.median if medians else time.best
            for time in self.times
            if not time.part and (time.scope, time.phase, time.batch_size) == (scope, phase, batch_size)
        }
        return found[other] / found[OURS]

    def as_dict(self) -> dict[str, Any]:
        """All numbers and ratios, ready for JSON."""
        sizes = sorted({time.batch_size for time in self.times})
        others = [cost.routing for cost in self.costs if cost.routing != OURS]
        ratios = []
        for keys in product(others, SCOPES, PHASES, sizes):
            named: dict[str, Any] = dict(zip(("other", "scope", "phase", "batch_size"), keys, strict=True))
            ratios.append({**named, "ratio": self.ratio(*keys), "ratio_of_medians": self.ratio(*keys, medians=True)})
        times = [{**asdict(time), "images_per_second": time.images_per_second} for time in self.times]
        costs = [asdict(cost) for cost in self.costs]
        return {"threads": self.threads, "costs": costs, "times": times, "ratios": ratios, "published": PUBLISHED}


def measure_routings(
    effort: Effort,
    *,
    batch_sizes: Sequence[int] = BATCH_SIZES,
    memory: bool = True,
    preset: str = _PRESET,
    log: Callable[[str], None] = silent,
) -> RoutingSpeed:
    """Measure all routings of the three-layer network in one run, turn by turn."""
    networks = build_networks(preset)
    costs = []
    for name, network in networks.items():
        log(f"{name}: multiply-adds and memory")
        peak = measure_memory(name, max(batch_sizes), preset) if memory else None
        costs.append(count_cost(name, network, peak))
    times: list[RoutingTime] = []
    for scope, phase, batch_size in product(SCOPES, PHASES, batch_sizes):
        log(f"{scope}, {phase}, batch {batch_size}")
        times += _times(networks, scope, phase, batch_size, effort)
    return RoutingSpeed(torch.get_num_threads(), tuple(costs), tuple(times))


def build_networks(preset: str = _PRESET) -> dict[str, ThreeLayerCaps]:
    """The network with each routing."""
    return {name: ThreeLayerCaps.from_preset(preset, num_classes=_CLASSES, routing=name) for name in ROUTINGS_COMPARED}


def children(network: ThreeLayerCaps, batch_size: int) -> Tensor:
    """Primary capsules of random directions, most of them long, so that couplings are as uneven as in a trained net."""
    generator = torch.Generator().manual_seed(0)
    shape = (batch_size, network.primary.capsules, network.primary.dim)
    return squash(torch.randn(shape, generator=generator), "quadratic")


def count_cost(name: str, network: ThreeLayerCaps, memory: int | None = None) -> RoutingCost:
    """The costs of one image."""
    routing, n = network.classes, network.primary.capsules
    classes, dim = network.num_classes, network.config["class_dim"]
    types = network.primary.types
    # attention has a coupling and a vote for each type, which collects all its places; SAA has no votes at all
    couplings = {"attention": classes * types, "saa": classes * n + dim * dim}.get(name, classes * n)
    votes = {"attention": classes * types * dim, "saa": 0}.get(name, classes * n * dim)
    work = count_multiply_adds(routing, children(network, 1)), count_multiply_adds(network, _images(network, 1))
    return RoutingCost(name, sum(weight.numel() for weight in routing.parameters()), *work, couplings, votes, memory)


def count_multiply_adds(module: nn.Module, given: Tensor) -> int:
    """Those of the matrix products and convolutions of a forward pass."""
    was_training = module.training
    module.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(given)
    module.train(was_training)
    return int(counter.get_total_flops()) // 2


def measure_memory(name: str, batch_size: int, preset: str = _PRESET) -> int:
    """How far the memory of a new process grows in one training step of a routing alone, in bytes."""
    found: int = in_new_process("parsecaps.paper.routing_speed", name, str(batch_size), preset)["growth"]
    return found


def _times(
    networks: dict[str, ThreeLayerCaps], scope: Scope, phase: Phase, batch_size: int, effort: Effort
) -> Iterator[RoutingTime]:
    tasks: dict[tuple[str, str], Task] = {}
    for name, network in networks.items():
        u = children(network, batch_size)
        if scope == "network":
            tasks[name, ""] = _task(network, _images(network, batch_size), phase)
            continue
        tasks[name, ""] = _task(network.classes, u, phase)
        if isinstance(network.classes, ClassCapsules):
            with torch.no_grad():
                votes = network.classes.votes(u)
            tasks[name, "without votes"] = _task(network.classes.routing, votes, phase)
    named = {"/".join(key): task for key, task in tasks.items()}
    for key, seconds in all_seconds(named, effort).items():
        name, _, part = key.partition("/")
        yield RoutingTime(name, part, scope, phase, batch_size, min(seconds), median(seconds))


def _images(network: ThreeLayerCaps, batch_size: int) -> Tensor:
    shape = (batch_size, network.in_channels, network.image_size, network.image_size)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _task(module: nn.Module, given: Tensor, phase: Phase) -> Task:
    """A call of a module; a routing alone gives its children gradients, as in a network."""
    module.train(phase != "forward")

    def forward() -> None:
        with torch.inference_mode():
            module(given)

    if phase == "forward":
        return forward
    whole = isinstance(module, ThreeLayerCaps)
    given = given.clone().requires_grad_(not whole)
    weights = list(module.parameters())
    optimizer = torch.optim.Adam(weights, lr=0.0, fused=True) if weights and phase == "training" else None
    label = torch.arange(len(given)) % _CLASSES

    def step() -> None:
        given.grad = None
        for weight in weights:
            weight.grad = None
        out = module(given)
        scores = out.logits if whole else out.norm(dim=-1)
        margin_loss(scores, label).backward()  # type: ignore[no-untyped-call]
        if optimizer is not None:
            optimizer.step()

    return step


def _memory_of_a_step(name: str, batch_size: int, preset: str) -> int:
    network = ThreeLayerCaps.from_preset(preset, num_classes=_CLASSES, routing=name)
    _task(network.classes, children(network, 1), "training")()  # loads what torch loads on first use
    u = children(network, batch_size)
    before = resident("VmRSS")
    _task(network.classes, u, "training")()
    return max(0, resident("VmHWM") - before)


if __name__ == "__main__":
    print(json.dumps({"growth": _memory_of_a_step(sys.argv[1], int(sys.argv[2]), sys.argv[3])}))
