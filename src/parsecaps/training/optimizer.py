"""How weights learn: Muon, AdamW or an older optimizer, with a linear warm-up, then a cosine to zero or steps."""

import math
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch
from pydantic import PositiveInt
from torch import Tensor, nn

from parsecaps.config import TrainingSection

_MOMENTUM = 0.95
_SGD_MOMENTUM, _RMSPROP_DECAY = 0.9, 0.9  # the usual ones, the second as in Keras, with which it was mostly used
_AS_LARGE_AS_ADAM = 0.2  # the root mean square of a step of AdamW, so that both share one learning rate
_UNDECAYED = {"bias", "scale", "prior", "axial_prior", "spot", "prototypes"}  # also all with fewer than two dimensions
_SMALLEST = 8  # a map with fewer rows or columns has no directions worth balancing
_TO_ONE = (3.4445, -4.7750, 2.0315)  # of the polynomial that drives singular values of (0, 1] to about 1 in five turns


class Schedule(TrainingSection):
    """The optimizer and its learning rate: linear warm-up, then a cosine to zero.

    With `schedule="steps"` the rate is multiplied by `decay` every `decay_epochs`, counted from the first step and not
    always whole, until it is `lowest_rate`. AdamW and Muon decay weights beside the step, the others in the gradient.
    Layers taken from other weights learn at `start_rate` times that rate, parts of the model at their
    `learning_rate_factor` times it: a bottleneck 10, a trunk with weights 0.3.
    """

    epochs: PositiveInt

    def rate(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate at a step of the run."""
        warm_up = max(1, min(self.warm_up_epochs, self.epochs // 4) * steps_per_epoch)
        warm = min((step + 1) / warm_up, 1.0)
        if self.schedule == "steps":
            times = math.floor(step / (self.decay_epochs * steps_per_epoch) + 1e-9)  # not one too few by rounding
            return warm * max(self.learning_rate * self.decay**times, min(self.lowest_rate, self.learning_rate))
        rest = max(1, self.epochs * steps_per_epoch - warm_up)
        cosine = 0.5 * (1 + math.cos(math.pi * max(0, step - warm_up) / rest))
        return max(self.learning_rate * warm * cosine, min(self.lowest_rate, self.learning_rate) * warm)

    def build_optimizer(self, module: nn.Module, taken: Collection[str] = ()) -> torch.optim.Optimizer:
        """The optimizer of all weights of a module, of which those named were taken from other weights."""
        maps = list(linear_maps(module)) if self.optimizer == "muon" else []
        held = {id(weight) for weight in maps}
        others = [(name, weight) for name, weight in module.named_parameters() if id(weight) not in held]
        groups: list[dict[str, Any]] = [
            {"params": [p for name, p in others if is_decayed(name, p)], "weight_decay": self.weight_decay},
            {"params": [p for name, p in others if not is_decayed(name, p)], "weight_decay": 0.0},
        ]
        if maps:
            groups = [{**group, "orthogonal": False} for group in groups]
            groups.append({"params": maps, "weight_decay": self.weight_decay, "orthogonal": True})
        if taken and self.start_rate < 1:
            slow = {id(parameter) for name, parameter in module.named_parameters() if name in taken}
            groups = [part for group in groups for part in _in_two(group, slow, self.start_rate)]
        for part in module.modules():
            if (factor := getattr(part, "learning_rate_factor", 1.0)) != 1:
                own = {id(parameter) for parameter in part.parameters()}
                groups = [each for group in groups for each in _in_two(group, own, factor)]
        kinds: dict[str, Callable[..., torch.optim.Optimizer]] = {
            "sgd": partial(torch.optim.SGD, momentum=_SGD_MOMENTUM, fused=True),
            "rmsprop": partial(torch.optim.RMSprop, alpha=_RMSPROP_DECAY),
            "adam": partial(torch.optim.Adam, fused=True),
        }
        default = partial(Muon if maps else torch.optim.AdamW, fused=True)
        return kinds.get(self.optimizer, default)(groups, lr=self.learning_rate)


def is_decayed(name: str, parameter: Tensor) -> bool:
    """Whether weight decay acts on a parameter: not on biases, scales, the priors of couplings and prototypes.

    >>> is_decayed("classes.readout.over_dim", torch.ones(8, 4)), is_decayed("classes.readout.bias", torch.ones(2, 4))
    (True, False)
    """
    return parameter.dim() >= 2 and _UNDECAYED.isdisjoint(name.split("."))


def _in_two(group: dict[str, Any], others: Collection[int], factor: float) -> list[dict[str, Any]]:
    """Split a group of weights into those that keep its rate and the `others`, at a `factor` of it."""
    own, changed = ([p for p in group["params"] if (id(p) in others) == wanted] for wanted in (False, True))
    both = [{**group, "params": own}, {**group, "params": changed, "factor": factor * group.get("factor", 1.0)}]
    return [each for each in both if each["params"]]


class Muon(torch.optim.AdamW):
    """AdamW, but for groups marked `orthogonal`: their step is the momentum with all its singular values made one.

    So a linear map moves along all directions alike, not mostly along the few that large gradients share. Jordan et
    al., "Muon: an optimizer for hidden layers in neural networks" (2024), with the scale of Liu et al., "Muon is
    scalable for LLM training" (2025), so that AdamW's learning rate and weight decay apply. `torch.optim.Muon` takes
    matrices alone and refuses the weights of convolutions.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        every = self.param_groups
        try:
            self.param_groups = [group for group in every if not group["orthogonal"]]
            super().step()
        finally:
            self.param_groups = every
        for group in every:
            if group["orthogonal"]:
                self._orthogonal_step(group)
        return loss

    def _orthogonal_step(self, group: dict[str, Any]) -> None:
        directions: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = {}  # those of one shape together
        for weight in group["params"]:
            if weight.grad is not None:
                state = self.state[weight]
                if not state:  # under the names that AdamW expects in a state it loads
                    state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
                    state["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
                state["step"] += 1
                momentum = state["exp_avg"].lerp_(weight.grad, 1 - _MOMENTUM)
                ahead = weight.grad.lerp(momentum, _MOMENTUM).flatten(1)
                directions.setdefault((ahead.shape[0], ahead.shape[1]), []).append((weight, ahead))
        for shape, pairs in directions.items():
            steps = orthogonal(torch.stack([ahead for _, ahead in pairs]))
            steps *= group["lr"] * _AS_LARGE_AS_ADAM * max(shape) ** 0.5
            for (weight, _), step in zip(pairs, steps, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step.view_as(weight))


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices (count, rows, columns) with all singular values near 1 (0.7 to 1.2), by Newton-Schulz."""
    first, third, fifth = _TO_ONE
    tall = matrices.shape[-2] > matrices.shape[-1]
    x: Tensor = matrices / matrices.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    x = x.mT if tall else x
    for _ in range(5):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x.mT if tall else x


def linear_maps(module: nn.Module) -> Iterator[Tensor]:
    """The weights that map all features to all features: of linear layers and of convolutions in one group."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d) and part.groups > 1:
            continue
        if isinstance(part, nn.Linear | nn.Conv2d) and min(len(part.weight), part.weight[0].numel()) >= _SMALLEST:
            yield part.weight
