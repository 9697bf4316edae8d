"""Muon: linear maps learn in orthogonal steps, everything else by AdamW."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

_MOMENTUM = 0.95
_AS_LARGE_AS_ADAM = 0.2  # the root mean square of a step of AdamW, so that both share one learning rate
_SMALLEST = 8  # a map with fewer rows or columns has no directions worth balancing
_TO_ONE = (3.4445, -4.7750, 2.0315)  # of the polynomial that drives singular values of (0, 1] to about 1 in five turns


class Muon(torch.optim.AdamW):
    """AdamW, but for groups marked `orthogonal`: their step is the momentum with all its singular values made one.

    AdamW scales every number alone. A linear map learned that way moves mostly along a few directions that large
    gradients share, and the rare ones (a concept in one image of ten) wait. Made orthogonal, a step moves along all
    directions alike. Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), with the scale of
    Liu et al., "Muon is scalable for LLM training" (2025), by which AdamW's learning rate and weight decay hold here.
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
                momentum = self._momentum(weight).lerp_(weight.grad, 1 - _MOMENTUM)
                ahead = weight.grad.lerp(momentum, _MOMENTUM).flatten(1)
                directions.setdefault((ahead.shape[0], ahead.shape[1]), []).append((weight, ahead))
        for shape, pairs in directions.items():
            steps = orthogonal(torch.stack([ahead for _, ahead in pairs]))
            steps *= group["lr"] * _AS_LARGE_AS_ADAM * max(shape) ** 0.5
            for (weight, _), step in zip(pairs, steps, strict=True):
                weight.mul_(1 - group["lr"] * group["weight_decay"]).sub_(step.view_as(weight))

    def _momentum(self, weight: nn.Parameter) -> Tensor:
        """The mean of the gradients so far, under the names that AdamW expects in a state it loads."""
        state = self.state[weight]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=weight.device)
            state["exp_avg"] = torch.zeros_like(weight, memory_format=torch.preserve_format)
        state["step"] += 1
        momentum: Tensor = state["exp_avg"]
        return momentum


def orthogonal(matrices: Tensor) -> Tensor:
    """Matrices with the singular vectors of these and singular values near 1 (0.7 to 1.2), by Newton-Schulz.

    Shapes:
        - input, output: (matrices, rows, columns)
    """
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
