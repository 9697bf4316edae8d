"""Normalisation of capsules over their instantiation parameters."""

from typing import Literal, get_args

from torch import Tensor, nn

Normalisation = Literal["batch", "layer"]


class CapsuleBatchNorm(nn.BatchNorm1d):
    """Batch normalisation of each instantiation parameter, over the batch and all capsules of a layer.

    Shapes:
        - input and output: (B, n, d)
    """

    def forward(self, u: Tensor) -> Tensor:
        return super().forward(u.flatten(0, 1)).view_as(u)


def capsule_norm(kind: Normalisation, dim: int) -> nn.Module:
    """`"layer"` is the paper's; `"batch"` trains better (deviation, `docs/study.md`)."""
    if kind == "batch":
        return CapsuleBatchNorm(dim)
    if kind == "layer":
        return nn.LayerNorm(dim)
    raise ValueError(f"normalisation is {kind!r}; choose one of {', '.join(get_args(Normalisation))}")
