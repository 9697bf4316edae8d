"""Normalisation of capsules over their instantiation parameters."""

from typing import Literal, get_args

import torch
from torch import Tensor, nn

Normalisation = Literal["batch", "layer"]


class CapsuleBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of each instantiation parameter, over the batch and all capsules of a layer.

    Shapes:
        - input and output: (B, n, d)
    """

    def forward(self, u: Tensor) -> Tensor:
        return super().forward(u.flatten(0, 1)).view_as(u)


class CapsuleScale(nn.Module):
    """What batch normalisation would multiply each instantiation parameter with, for places where shifts are no matter.

    The running variance is kept as `nn.BatchNorm1d` keeps it.

    Shapes:
        - input: (B, n, d)
        - output: (d,)
    """

    running_var: Tensor

    def __init__(self, dim: int, *, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, u: Tensor) -> Tensor:
        variance = self.running_var
        if self.training:
            variance = u.to(self.running_var.dtype).var((0, 1), correction=0)
            count = u.shape[0] * u.shape[1]
            with torch.no_grad():
                self.running_var.lerp_(variance * (count / max(1, count - 1)), self.momentum)
        return self.weight * torch.rsqrt(variance + self.eps)


def capsule_norm(kind: Normalisation, dim: int, *, bias: bool = True) -> CapsuleBatchNorm | nn.LayerNorm:
    """`"layer"` is the paper's, `"batch"` the default (deviation, `docs/paper.md`).

    `bias=False` is for places where a shift has no effect on what follows.
    """
    if kind == "batch":
        norm = CapsuleBatchNorm(dim)
        if not bias:
            norm.register_parameter("bias", None)
        return norm
    if kind == "layer":
        return nn.LayerNorm(dim, bias=bias)
    raise ValueError(f"normalisation is {kind!r}; choose one of {', '.join(get_args(Normalisation))}")
