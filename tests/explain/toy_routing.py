"""A routing from outside the package: each parent takes what is at fixed places among its own children."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.nn import Messages, Routing, RoutingConfig, Way


@dataclass(frozen=True, eq=False)
class ToyMessages(Messages):
    """Kept as they are: (B, 1, n', n). Shapes: v (B, n, d'), c (B, 1, n', n)."""

    v: Tensor
    c: Tensor

    @property
    def coupling(self) -> Tensor:
        return self.c

    def along(self, direction: Tensor) -> Tensor:
        return self.c * (direction @ self.v.mT).unsqueeze(1)


class OwnChildren(Routing):
    """Each parent is the squashed mean of its own children, through one linear map."""

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        self.way = Way("own children", chooses=True)
        parent_width = -(-width // stride)
        coupling = torch.zeros(parent_width**2, width**2)
        for child in range(width**2):
            y, x = divmod(child, width)
            if self.takes(y % stride, x % stride, stride):
                coupling[y // stride * parent_width + x // stride, child] = 1
        self.register_buffer("c", coupling / coupling.sum(1, keepdim=True).clamp_min(1))

    def takes(self, row: int, column: int, stride: int) -> bool:
        """Whether a parent takes the child at this place among its own."""
        return True

    def forward(self, u: Tensor) -> Tensor:
        messages = ToyMessages(self.value(u), self.c.expand(u.shape[0], 1, -1, -1))
        return squash(self.way(self.c @ messages.v, messages))


class UpperRight(OwnChildren):
    """Each parent takes the upper right of its own children and no other."""

    def takes(self, row: int, column: int, stride: int) -> bool:
        return (row, column) == (0, stride - 1)
