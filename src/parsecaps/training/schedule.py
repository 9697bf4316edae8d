"""How fast to learn: AdamW, linear warm-up, and a cosine to zero."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True)
class Schedule:
    """AdamW with linear warm-up and a cosine to zero; biases, scales and priors are not decayed."""

    epochs: int
    batch_size: int = 16
    learning_rate: float = 1.5e-3
    weight_decay: float = 0.01
    warm_up_epochs: int = 5
    max_grad_norm: float = 1.0

    def factor(self, step: int, steps_per_epoch: int) -> float:
        """The learning rate at a step, as a share of the highest."""
        warm_up = max(1, min(self.warm_up_epochs, self.epochs // 4) * steps_per_epoch)
        rest = max(1, self.epochs * steps_per_epoch - warm_up)
        return min((step + 1) / warm_up, 1.0) * 0.5 * (1 + math.cos(math.pi * max(0, step - warm_up) / rest))

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.AdamW:
        """AdamW for these parameters."""
        every = list(parameters)
        groups = [
            {"params": [p for p in every if p.dim() >= 2], "weight_decay": self.weight_decay},
            {"params": [p for p in every if p.dim() < 2], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=self.learning_rate, fused=True)
