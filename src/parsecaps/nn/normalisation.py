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
