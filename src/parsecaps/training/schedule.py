"""How fast to learn: the optimizer, linear warm-up, and a cosine to zero."""

import math
from dataclasses import dataclass

import torch
from torch import nn

from parsecaps.config.sections import Optimizer
from parsecaps.training.muon import Muon, linear_maps


@dataclass(frozen=True)
class Schedule:
    """Muon or AdamW with linear warm-up and a cosine to zero; biases, scales and priors are not decayed."""

    epochs: int
    batch_size: int = 16
    optimizer: Optimizer = "muon"
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.01
    warm_up_epochs: int = 5
    max_grad_norm: float = 1.0

    def factor(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate at a step, as a share of the highest."""
        warm_up = max(1, min(self.warm_up_epochs, self.epochs // 4) * steps_per_epoch)
        rest = max(1, self.epochs * steps_per_epoch - warm_up)
        return min((step + 1) / warm_up, 1.0) * 0.5 * (1 + math.cos(math.pi * max(0, step - warm_up) / rest))

    def build_optimizer(self, module: nn.Module) -> torch.optim.AdamW:
        """The optimizer of all weights of a module."""
        maps = list(linear_maps(module)) if self.optimizer == "muon" else []
        held = {id(weight) for weight in maps}
        others = [weight for weight in module.parameters() if id(weight) not in held]
        groups = [
            {"params": [p for p in others if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in others if p.dim() < 2], "weight_decay": 0.0},
        ]
        if not maps:
            return torch.optim.AdamW(groups, lr=self.learning_rate, fused=True)
        groups = [{**group, "orthogonal": False} for group in groups]
        groups.append({"params": maps, "weight_decay": self.weight_decay, "orthogonal": True})
        return Muon(groups, lr=self.learning_rate, fused=True)
