"""A function of tensors written down, gradients within it too, as a graph of elementary operations of PyTorch.

`torch.export` cannot trace a function that takes gradients; `make_fx` can, for inputs of one size. So a function of any
number of images is traced for two and for three of them: whatever differs between the two grows with the batch.

Operations that exported graphs have no word for, gradients above all, become simpler ones (`decompositions`): those of
a network in evaluation mode whose weights need no gradient.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves, tree_map

from parsecaps.functional.squash import tracing_for_export

# A size along an axis: a number, or -k for k times the batch.
Shape = tuple[int, ...]

aten = torch.ops.aten

_BY_PYTORCH = (
    *(aten.addcmul, aten.baddbmm, aten.clamp_max, aten.clamp_min, aten.hardtanh, aten.linalg_vector_norm),
    *(aten.native_layer_norm, aten.rsub, aten.silu, aten.stack, aten.t, aten.transpose),
    *(aten.gelu_backward, aten.native_layer_norm_backward, aten.sigmoid_backward, aten.tanh_backward),
    *(aten.hardtanh_backward, aten.threshold_backward, aten._softmax_backward_data),
    *(aten.diag_embed, aten.native_batch_norm_backward),
)
_BATCHES = (2, 3)
_NEVER_FOLDED = ("aten.expand.default", "aten.repeat.default")  # a constant made larger, and nothing more


class Operation(NamedTuple):
    """An operation: its name as in `aten.add.Tensor`, and for each of its results the shape and the type."""

    name: str
    shapes: tuple[Shape, ...]
    dtypes: tuple[torch.dtype, ...]


def trace_function(function: Callable[[Tensor], Sequence[Tensor]], image: Tensor, any_batch: bool) -> fx.Graph:
    """Write down a function of prepared images, for images shaped like `image` (1, channels, size, size).

    With `any_batch` the result holds for any number of images, otherwise for one. The `meta` of a node has its
    `operation` and, if it is constant, its `value`; among its arguments -k stands for k times the batch.
    """
    graphs = []
    shapes = FakeTensorMode(allow_fallback_kernels=True)  # one for all: one for each node takes twice the time
    with tracing_for_export(), tracing(TracingContext(shapes)):
        for count in _BATCHES if any_batch else (1,):
            graph = make_fx(function, decompositions())(image.repeat(count, 1, 1, 1))
            graph.graph.eliminate_dead_code()
            graphs.append(graph)
    nodes, twins = (list(graph.graph.nodes) for graph in (graphs[0], graphs[-1]))
    if [str(node.target) for node in nodes] != [str(node.target) for node in twins]:
        raise ValueError("the network does different things for two images and for three; it cannot be exported")
    for node, twin in zip(nodes, twins, strict=True):
        if node.op == "get_attr":
            node.meta["value"] = getattr(graphs[0], str(node.target)).detach()
        elif node.op != "output":
            _complete(node, twin)
    return graphs[0].graph


def _complete(node: fx.Node, twin: fx.Node) -> None:
    """Write into a node what it shares with its twin in the other graph, and its value if all that it needs has one."""
    node.args, node.kwargs = tree_map(_with_batch, (node.args, node.kwargs), (twin.args, twin.kwargs))
    found = [[each for each in tree_leaves(one.meta["val"]) if isinstance(each, Tensor)] for one in (node, twin)]
    sizes = [[list(each.shape) for each in results] for results in found]
    shapes = tuple(map(tuple, tree_map(_with_batch, *sizes)))
    operation = Operation(str(node.target), shapes, tuple(each.dtype for each in found[0]))
    node.meta["operation"] = operation
    grows = any(size < 0 for shape in shapes for size in shape) or operation.name in _NEVER_FOLDED
    if node.op == "call_function" and not grows and all("value" in each.meta for each in node.all_input_nodes):
        args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: each.meta["value"])
        value = node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(value, Tensor):  # of several results each is picked by another operation
            node.meta["value"] = value.clone()


def _with_batch(one: Any, other: Any) -> Any:
    """An argument or a size of both graphs as one: numbers that grow with the batch as -k for k times the batch.

    >>> _with_batch(2, 3), _with_batch(8, 12), _with_batch(5, 5)
    (-1, -4, 5)
    """
    if not isinstance(one, int) or one == other:
        return one
    times, rest = divmod(one, _BATCHES[0])
    if rest or other != times * _BATCHES[1]:
        raise ValueError(f"a size of the network is {one} for two images and {other} for three; it cannot be exported")
    return -times


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


def _index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    dim = range(x.dim())[dim]
    index = index.view(-1, *[1] * (x.dim() - 1 - dim)).expand_as(source)
    return x.scatter_add(dim, index, source if alpha == 1 else alpha * source)


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, bias_sizes: Any, *settings: Any
) -> tuple[Tensor, None, None]:
    stride, padding, dilation, transposed, _, groups, mask = settings
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
    aten.index_add.default: _index_add,
    aten.convolution_backward.default: _convolution_backward,
    aten.avg_pool2d_backward.default: _avg_pool2d_backward,
}
