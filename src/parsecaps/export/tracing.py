"""A function of tensors written down, gradients within it too, as a list of elementary operations of PyTorch.

`torch.export` cannot trace a function that takes gradients; `make_fx` can, for inputs of one size. So a function of any
number of images is traced for two and for three of them: whatever differs between the two grows with the batch.

Operations that exported graphs have no word for, gradients above all, become simpler ones (`decompositions`): those of
a network in evaluation mode whose weights need no gradient.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, fx
from torch._decomp import get_decompositions
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from parsecaps.functional.squash import tracing_for_export

# A size along an axis: a number, or -k for k times the batch.
Shape = tuple[int, ...]

aten = torch.ops.aten

_BY_PYTORCH = (
    *(aten.addcmul, aten.baddbmm, aten.clamp_max, aten.clamp_min, aten.hardtanh, aten.linalg_vector_norm),
    *(aten.native_layer_norm, aten.rsub, aten.silu, aten.stack, aten.t, aten.transpose),
    *(aten.gelu_backward, aten.native_layer_norm_backward, aten.sigmoid_backward, aten.tanh_backward),
    *(aten.hardtanh_backward, aten.threshold_backward, aten._softmax_backward_data),
)
_BATCHES = (2, 3)
_NEVER_FOLDED = ("aten.expand.default", "aten.repeat.default")  # a constant made larger, and nothing more


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation: its name as in `aten.add.Tensor`, its arguments, in which an `Operation` stands for its result,
    and for each of its own results the shape and the type. `value` is set for constants.
    """

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    shapes: tuple[Shape, ...] = ()
    dtypes: tuple[torch.dtype, ...] = ()
    value: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Traced:
    """The operations that give the `outputs`, in the order in which they run; `image` is the input."""

    image: Operation
    operations: tuple[Operation, ...]
    outputs: tuple[Operation, ...]


def trace_function(function: Callable[[Tensor], Sequence[Tensor]], image: Tensor, any_batch: bool) -> Traced:
    """Write down a function of prepared images, for images shaped like `image` (1, channels, size, size).

    With `any_batch` the result holds for any number of images, otherwise for one.
    """
    graphs = []
    shapes = FakeTensorMode(allow_fallback_kernels=True)  # one for all: one for each node takes twice the time
    with tracing_for_export(), tracing(TracingContext(shapes)):
        for count in _BATCHES if any_batch else (1,):
            graph = make_fx(function, decompositions())(image.repeat(count, 1, 1, 1))
            graph.graph.eliminate_dead_code()
            graphs.append(graph)
    return _read(graphs)


def _read(graphs: Sequence[fx.GraphModule]) -> Traced:
    """Translate one graph, or two that differ only in the number of images."""
    nodes, twins = (list(graph.graph.nodes) for graph in (graphs[0], graphs[-1]))
    if [str(node.target) for node in nodes] != [str(node.target) for node in twins]:
        raise ValueError("the network does different things for two images and for three; it cannot be exported")
    found: dict[fx.Node, Operation] = {}
    for node, twin in zip(nodes, twins, strict=True):
        if node.op == "get_attr":
            found[node] = _constant(getattr(graphs[0], str(node.target)).detach())
        elif node.op != "output":
            found[node] = _folded(node, _operation(node, twin, found), found)
    (image,) = (found[node] for node in nodes if node.op == "placeholder")
    operations = tuple(each for each in found.values() if each.value is None and each is not image)
    return Traced(image, operations, tuple(found[node] for node in nodes[-1].args[0]))


def _operation(node: fx.Node, twin: fx.Node, found: Mapping[fx.Node, Operation]) -> Operation:
    args, kwargs = _argument(node.args, twin.args, found), _argument(node.kwargs, twin.kwargs, found)
    results, twins = (_results(each.meta["val"]) for each in (node, twin))
    shapes = tuple(_with_batch(one.shape, other.shape) for one, other in zip(results, twins, strict=True))
    name = str(node.target) if node.op == "call_function" else "image"
    return Operation(name, args, kwargs, shapes, tuple(each.dtype for each in results))


def _folded(node: fx.Node, operation: Operation, found: Mapping[fx.Node, Operation]) -> Operation:
    """The result of an operation on constants alone as a constant; any other operation as it is."""
    fixed = all(found[each].value is not None for each in node.all_input_nodes)
    grows = any(size < 0 for shape in operation.shapes for size in shape)
    if node.op != "call_function" or not fixed or operation.name in _NEVER_FOLDED or grows:
        return operation
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda each: found[each].value)
    value = node.target(*args, **kwargs)  # type: ignore[operator]
    # of several results each is picked by another operation
    return _constant(value.clone()) if isinstance(value, Tensor) else operation


def _argument(one: Any, other: Any, found: Mapping[fx.Node, Operation]) -> Any:
    """An argument of both graphs as one: nodes as operations, numbers that grow with the batch as -k."""
    if isinstance(one, fx.Node):
        return found[one]
    if isinstance(one, Mapping):
        return {key: _argument(one[key], other[key], found) for key in one}
    if isinstance(one, list | tuple):
        return tuple(_argument(a, b, found) for a, b in zip(one, other, strict=True))
    if isinstance(one, int) and one != other:
        return _with_batch((one,), (other,))[0]
    return one


def _constant(value: Tensor) -> Operation:
    return Operation("constant", shapes=(tuple(value.shape),), dtypes=(value.dtype,), value=value)


def _results(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else [each for each in value if isinstance(each, Tensor)]


def _with_batch(one: Sequence[int], other: Sequence[int]) -> Shape:
    """Two shapes as one, in which -k stands for k times the batch.

    >>> _with_batch((2, 8, 5), (3, 12, 5))
    (-1, -4, 5)
    """
    shape = []
    for low, high in zip(one, other, strict=True):
        times, rest = divmod(low, _BATCHES[0])
        if low != high and (rest or high != times * _BATCHES[1]):
            raise ValueError(
                f"a size of the network is {low} for two images and {high} for three; it cannot be exported"
            )
        shape.append(low if low == high else -times)
    return tuple(shape)


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
    aten.diag_embed.default: _diag_embed,
    aten.index_add.default: _index_add,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.convolution_backward.default: _convolution_backward,
    aten.avg_pool2d_backward.default: _avg_pool2d_backward,
}
