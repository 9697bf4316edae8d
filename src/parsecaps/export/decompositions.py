"""Operations of PyTorch that exported graphs have no word for, as simpler ones; gradients above all.

They are those of a network in evaluation mode whose weights need no gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp import get_decompositions
from torch.nn import functional as F

aten = torch.ops.aten

_BY_PYTORCH = (
    aten.addcmul,
    aten.gelu_backward,
    aten.native_layer_norm,
    aten.native_layer_norm_backward,
    aten._softmax_backward_data,
    aten.threshold_backward,
    aten.sigmoid_backward,
    aten.tanh_backward,
    aten.linalg_vector_norm,
    aten.rsub,
    aten.hardtanh,
    aten.silu,
)


def decompositions() -> dict[Any, Callable[..., Any]]:
    """What each operation is made of, for `make_fx`."""
    return {**get_decompositions(_BY_PYTORCH), **_OURS}


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"the network cannot be exported: {what}")


def _expm1(x: Tensor) -> Tensor:
    """By tanh, which keeps its digits near 0, where exp(x) - 1 has none left; for x that is not large."""
    t = torch.tanh(x / 2)
    return 2 * t / (1 - t)


def _unfold(x: Tensor, dim: int, size: int, step: int) -> Tensor:
    dim = range(x.dim())[dim]
    count = (x.shape[dim] - size) // step + 1
    places = step * torch.arange(count).unsqueeze(1) + torch.arange(size)
    windows = x.index_select(dim, places.flatten())
    return windows.view(*x.shape[:dim], count, size, *x.shape[dim + 1 :]).movedim(dim + 1, -1)


def _median(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    values, places = x.sort(dim)
    middle = (x.shape[dim] - 1) // 2
    found = [each.narrow(dim, middle, 1) for each in (values, places)]
    return tuple(found) if keepdim else tuple(each.squeeze(dim) for each in found)  # type: ignore[return-value]


def _select_backward(grad: Tensor, sizes: Sequence[int], dim: int, index: int) -> Tensor:
    return _slice_backward(grad.unsqueeze(dim), sizes, dim, index, index + 1, 1)


def _slice_backward(grad: Tensor, sizes: Sequence[int], dim: int, start: int, end: int, step: int) -> Tensor:
    _require(step == 1, "it takes a gradient of every second number of a tensor")
    dim = range(len(sizes))[dim]
    start = range(sizes[dim])[start] if start < sizes[dim] else sizes[dim]
    padding = [0, 0] * (len(sizes) - 1 - dim) + [start, sizes[dim] - start - grad.shape[dim]]
    return F.pad(grad, padding)


def _diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    _require(
        (offset, dim1 % (x.dim() + 1), dim2 % (x.dim() + 1)) == (0, x.dim() - 1, x.dim()),
        "it makes a matrix of another diagonal than the first",
    )
    return x.unsqueeze(-1) * torch.eye(x.shape[-1], dtype=x.dtype)


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    dim = range(x.dim())[dim]
    index = index.view(-1, *[1] * (x.dim() - 1 - dim)).expand_as(source)
    return x.scatter_add(dim, index, source if alpha == 1 else alpha * source)


def _batch_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor | None, mean: Tensor, var: Tensor, *others: Any
) -> tuple[Tensor, None, None]:
    train, eps = others[-3], others[-2]
    _require(not train, "it is in training mode")
    scale = torch.rsqrt(var + eps) if weight is None else weight * torch.rsqrt(var + eps)
    return grad * scale.view(-1, *[1] * (grad.dim() - 2)), None, None


def _convolution_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    mask: Sequence[bool],
) -> tuple[Tensor, None, None]:
    _require(
        not transposed and list(mask) == [True, False, False],
        "it takes a gradient of weights, or of a transposed convolution",
    )
    missing = []
    for axis, (step, pad, spread) in enumerate(zip(stride, padding, dilation, strict=True)):
        reached = (grad.shape[2 + axis] - 1) * step - 2 * pad + spread * (weight.shape[2 + axis] - 1) + 1
        missing.append(x.shape[2 + axis] - reached)
    return aten.convolution(grad, weight, None, stride, padding, dilation, True, missing, groups), None, None


def _avg_pool2d_backward(
    grad: Tensor, x: Tensor, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], *others: Any
) -> Tensor:
    side = kernel[0]
    _require(
        set(kernel) == set(stride or kernel) == {side} and not any(padding),
        "it takes a gradient of pooling over windows that overlap",
    )
    for axis in (2, 3):
        size = x.shape[axis]
        count = torch.tensor([float(min(side, size - start)) for start in range(0, size, side)][: grad.shape[axis]])
        grad = grad / count.view(-1, *[1] * (3 - axis))
        wide = grad.unsqueeze(axis + 1).expand(*grad.shape[: axis + 1], side, *grad.shape[axis + 1 :])
        grad = wide.flatten(axis, axis + 1).narrow(axis, 0, min(size, side * grad.shape[axis]))
        _require(grad.shape[axis] == size, "it takes a gradient of pooling that leaves out a border")
    return grad


_OURS: dict[Any, Callable[..., Any]] = {
    aten.expm1.default: _expm1,
    aten.unfold.default: _unfold,
    aten.median.dim: _median,
    aten.select_backward.default: _select_backward,
    aten.slice_backward.default: _slice_backward,
    aten.diag_embed.default: _diag_embed,
    aten.index_add.default: _index_add,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.convolution_backward.default: _convolution_backward,
    aten.avg_pool2d_backward.default: _avg_pool2d_backward,
}
