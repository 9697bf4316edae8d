"""From the operations of PyTorch to a graph of ONNX, one after the other.

`HANDLERS` says which function translates an operation, by its name or its family.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._pytree import tree_map

from parsecaps.export.onnx_builder import GraphBuilder, Value
from parsecaps.export.tracing import Operation

Results = Value | tuple[Value, ...]
Handler = Callable[..., Results]
_ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min"}
_COMPARISONS = {"eq": "Equal", "gt": "Greater", "lt": "Less", "ge": "GreaterOrEqual", "le": "LessOrEqual"}
_NAMESAKES = ("abs", "erf", "exp", "log", "neg", "reciprocal", "relu", "sigmoid", "sign", "sqrt", "tanh")
_RESHAPES = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")
_FILLS = ("new_zeros", "zeros", "zeros_like", "ones", "ones_like", "new_ones", "full", "full_like", "new_full")
_LOGIC = {f"{way}_{name}": name.capitalize() for way in ("bitwise", "logical") for name in ("and", "or", "not")}


def translate(graph: fx.Graph, names: Sequence[str]) -> tuple[GraphBuilder, dict[str, Value]]:
    """The graph of a traced function, and its outputs by their names."""
    builder = GraphBuilder("image")
    found: dict[fx.Node, Results] = {}

    def value(argument: Any) -> Any:
        if not isinstance(argument, fx.Node):
            return argument
        if argument not in found:
            found[argument] = builder.value_of(argument.meta["value"])
        return found[argument]

    for node in graph.nodes:
        operation = node.meta.get("operation")
        if node.op == "placeholder":
            (shape,) = operation.shapes
            found[node] = Value("image", shape, shape, torch.float32)
        elif node.op == "call_function" and "value" not in node.meta:
            handler = HANDLERS.get(operation.name) or HANDLERS.get(family(operation.name))
            if handler is None:
                raise ValueError(f"the network uses {operation.name}, which cannot be exported to ONNX")
            args, kwargs = tree_map(value, (node.args, node.kwargs))
            rest = node.target._schema.arguments[len(args) :] if isinstance(node.target, OpOverload) else ()
            defaults = (each.default_value for each in rest if not each.kwarg_only)
            found[node] = handler(builder, operation, *args, *defaults, **kwargs)
    outputs: Any = graph.output_node().args[0]
    return builder, {name: value(output) for name, output in zip(names, outputs, strict=True)}


def family(name: str) -> str:
    """The name without its overload, and without the mark of those that work in place: `aten.add_.Tensor` is `add`."""
    return name.removeprefix("aten.").split(".")[0].rstrip("_")


def as_value(b: GraphBuilder, x: Any, dtype: torch.dtype) -> Value:
    """A value in this type, or a number as one."""
    return b.cast(x, dtype) if isinstance(x, Value) else b.value_of(torch.tensor(x, dtype=dtype))


def of_node(b: GraphBuilder, o: Operation, kind: str, *inputs: Value | str, **attributes: Any) -> Value:
    """The first result of a node whose inputs are there in full; constants may be given by their names."""
    names = (given if isinstance(given, str) else b.full(given).name for given in inputs)
    return Value(b.node(kind, *names, **attributes)[0], o.shapes[0], o.shapes[0], o.dtypes[0])


def each(kind: str, b: GraphBuilder, o: Operation, x: Value, *others: Any, **attributes: Any) -> Value:
    """A node that works number by number, in the shape of the operation; its other inputs may be plain numbers."""
    values = [x, *(other if isinstance(other, Value) else as_value(b, other, x.dtype) for other in others)]
    return b.elementwise(kind, values, o.shapes[0], o.dtypes[0], **attributes)


def _arithmetic(b: GraphBuilder, o: Operation, x: Any, y: Any, *, alpha: float = 1, **others: Any) -> Value:
    if any(mode is not None for mode in others.values()):
        raise ValueError(f"the network uses {o.name} with rounding, which cannot be exported to ONNX")
    dtype = o.dtypes[0]
    x, y = as_value(b, x, dtype), as_value(b, y, dtype)
    kind = _ARITHMETIC[family(o.name)]
    if alpha == -1 and kind in ("Add", "Sub"):
        kind = "Sub" if kind == "Add" else "Add"
    elif alpha != 1:
        y = b.elementwise("Mul", [y, as_value(b, alpha, dtype)], y.shape, dtype)
    return each(kind, b, o, x, y)


def _comparison(b: GraphBuilder, o: Operation, x: Value, y: Any) -> Value:
    dtype = torch.promote_types(x.dtype, y.dtype) if isinstance(y, Value) else x.dtype
    kind = _COMPARISONS.get(family(o.name), "Equal")
    found = each(kind, b, o, as_value(b, x, dtype), as_value(b, y, dtype))
    return each("Not", b, o, found) if family(o.name) == "ne" else found


def _clamp(b: GraphBuilder, o: Operation, x: Value, low: Any, high: Any, **ends: Any) -> Value:
    for kind, end in (("Max", ends.get("min", low)), ("Min", ends.get("max", high))):
        if kind == "Max" and end == 0:
            x = each("Relu", b, o, x)
        elif end is not None:
            x = each(kind, b, o, x, as_value(b, end, x.dtype))
    return x


def _on_rows(b: GraphBuilder, kind: str, x: Value, row: Value) -> Value:
    """An operation of each row of `x` with one row, in the shape that `x` had before its rows were put together."""
    root = x.root if x.root is not None and x.root.shape[-1] == x.shape[-1] else x
    if kind == "Mul":
        return b.reshape(b.scale_rows(root, row), x.shape)
    return b.reshape(b.elementwise(kind, [root, row], root.shape, x.dtype), x.shape)


def _reduce(b: GraphBuilder, o: Operation, x: Value, dim: Any = None, keepdim: bool = False, **others: Any) -> Value:
    kind = {"sum": "Sum", "mean": "Mean", "amax": "Max", "amin": "Min", "any": "Max", "all": "Min"}[family(o.name)]
    dims = (dim,) if isinstance(dim, int) else dim or range(len(x.shape))
    dims = tuple(sorted(axis % len(x.shape) for axis in dims))
    if any(x.actual[axis] != x.shape[axis] for axis in dims):
        x = b.full(x)
    x = b.cast(x, torch.int64 if x.dtype == torch.bool else x.dtype)
    given = x.name
    if kind == "Sum" and (squared := b.squared(given)) is not None:
        kind, given = "SumSquare", squared
    (name,) = b.node(f"Reduce{kind}", given, b.constant(dims), keepdims=int(keepdim))
    actual = tuple(1 if axis in dims else size for axis, size in enumerate(x.actual) if keepdim or axis not in dims)
    return b.cast(Value(name, o.shapes[0], actual, x.dtype), o.dtypes[0])


def _var_mean(
    b: GraphBuilder, o: Operation, x: Value, dim: Sequence[int], *, correction: float = 0, keepdim: bool = False
) -> tuple[Value, Value]:
    if correction or not keepdim:
        raise ValueError("the network takes another variance than layer normalisation does; it cannot be exported")
    axes, x = b.constant([axis % len(x.shape) for axis in dim]), b.full(x)
    mean = of_node(b, o, "ReduceMean", x, axes, keepdims=1)
    rest = b.elementwise("Sub", [x, mean], x.shape, x.dtype)
    square = b.elementwise("Mul", [rest, rest], x.shape, x.dtype)
    return of_node(b, o, "ReduceMean", square, axes, keepdims=1), mean


def _batch_norm(b: GraphBuilder, o: Operation, x: Value, *statistics: Any) -> tuple[Value, ...]:
    weight, bias, mean, var, *_, eps = statistics
    ones, zeros = (b.value_of(fill(mean.shape)) for fill in (torch.ones, torch.zeros))
    scale, shift = ones if weight is None else weight, zeros if bias is None else bias
    if len(x.shape) > 2:  # behind a convolution, into which a runtime puts it
        return (of_node(b, o, "BatchNormalization", x, scale, shift, mean, var, epsilon=eps),)
    numbers = [torch.from_numpy(b.constants[value.name]).double() for value in (scale, shift, mean, var)]
    factor = numbers[0] / (numbers[3] + eps).sqrt()
    rest = numbers[1] - numbers[2] * factor
    scaled = _on_rows(b, "Mul", x, b.value_of(factor.float()))
    return (_on_rows(b, "Add", scaled, b.value_of(rest.float())) if bool(rest.any()) else scaled,)


def _convolution(b: GraphBuilder, o: Operation, x: Value, weight: Value, bias: Value | None, *window: Any) -> Value:
    stride, padding, dilation, transposed, output_padding, groups = window
    settings: dict[str, Any] = {"strides": stride, "pads": (*padding, *padding), "dilations": dilation, "group": groups}
    if transposed:
        settings["output_padding"] = output_padding
    given = [value for value in (x, weight, bias) if value is not None]
    return of_node(b, o, "ConvTranspose" if transposed else "Conv", *given, **settings)


def _pool(b: GraphBuilder, o: Operation, x: Value, kernel: Any, stride: Any, padding: Any, *others: Any) -> Results:
    if family(o.name) == "max_pool2d_with_indices":
        dilation, ceil_mode = others
        kind, settings = "MaxPool", {"pads": (*padding, *padding), "dilations": dilation}
    else:
        ceil_mode, *modes = others
        if any(padding) or any(each not in (True, None) for each in modes):
            raise ValueError("the network pools with padding, which cannot be exported to ONNX")
        kind, settings = "AveragePool", {}
    found = of_node(b, o, kind, x, kernel_shape=kernel, strides=stride or kernel, ceil_mode=int(ceil_mode), **settings)
    return found if kind == "AveragePool" else (found,)


def _log1p(b: GraphBuilder, o: Operation, x: Value) -> Value:
    """`x log(y) / (y - 1)` with y = 1 + x as it is rounded, which keeps the digits that log(1 + x) has lost near 0."""
    y = each("Add", b, o, x, 1.0)
    rest = each("Sub", b, o, y, 1.0)
    same = b.elementwise("Equal", [rest, as_value(b, 0.0, x.dtype)], o.shapes[0], torch.bool)
    top, bottom = each("Mul", b, o, x, each("Log", b, o, y)), each("Where", b, o, same, as_value(b, 1.0, x.dtype), rest)
    return each("Where", b, o, same, x, each("Div", b, o, top, bottom))


def _repeat(b: GraphBuilder, o: Operation, x: Value, times: Sequence[int]) -> Value:
    x = b.reshape(x, (1,) * (len(times) - len(x.shape)) + x.shape)
    return of_node(b, o, "Tile", x, b.shape_of(tuple(times)))


def _filled(b: GraphBuilder, o: Operation, *others: Any, **more: Any) -> Value:
    number = others[-1] if "full" in o.name else "ones" in o.name
    return b.expand(b.value_of(torch.tensor(number, dtype=o.dtypes[0])), o.shapes[0])


def _pad(b: GraphBuilder, o: Operation, x: Value, padding: Sequence[int], number: float) -> Value:
    rank = len(x.shape)
    pads = [0] * (2 * rank)
    for i in range(len(padding) // 2):
        pads[rank - 1 - i], pads[2 * rank - 1 - i] = padding[2 * i], padding[2 * i + 1]
    return of_node(b, o, "Pad", x, b.constant(pads), as_value(b, number, x.dtype))


def _slice(b: GraphBuilder, o: Operation, x: Value, dim: int, start: Any, end: Any, step: int) -> Value:
    if x.shape == o.shapes[0]:
        return x
    ends = (start or 0, 2**63 - 1 if end is None else end, dim % len(x.shape), step)
    return of_node(b, o, "Slice", x, *(b.constant([each]) for each in ends))


def _select(b: GraphBuilder, o: Operation, x: Value, dim: int, index: int) -> Value:
    dim = dim % len(x.shape)
    if x.shape[dim] == 1:
        return b.reshape(x, o.shapes[0])
    return of_node(b, o, "Gather", x, b.constant(np.array(index % x.shape[dim])), axis=dim)


def _unbind(b: GraphBuilder, o: Operation, x: Value, dim: int) -> tuple[Value, ...]:
    dim, x = dim % len(x.shape), b.full(x)
    names = [b.node("Gather", x.name, b.constant(np.array(i)), axis=dim)[0] for i in range(x.shape[dim])]
    return tuple(Value(name, shape, shape, x.dtype) for name, shape in zip(names, o.shapes, strict=True))


def _index(b: GraphBuilder, o: Operation, x: Value, indices: Sequence[Value | None]) -> Value:
    places = [dim for dim, index in enumerate(indices) if index is not None]
    if len(places) != 1 or (index := indices[places[0]]) is None or index.dtype != torch.int64:
        raise ValueError("the network picks from several axes at once, which cannot be exported to ONNX")
    return of_node(b, o, "Gather", x, index, axis=places[0])


def _scatter(b: GraphBuilder, o: Operation, x: Value, dim: int, index: Value, source: Any, **others: Any) -> Value:
    if not isinstance(source, Value) or others:
        raise ValueError(f"the network uses {o.name} with a number, which cannot be exported to ONNX")
    reduction = {"reduction": "add"} if family(o.name) == "scatter_add" else {}
    return of_node(b, o, "ScatterElements", x, index, source, axis=dim % len(x.shape), **reduction)


def _sort(b: GraphBuilder, o: Operation, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, ...]:
    axis = dim % len(x.shape)
    count = b.constant([x.shape[axis]])
    names = b.node("TopK", b.full(x).name, count, outputs=2, axis=axis, largest=int(descending), sorted=1)
    return tuple(Value(name, x.shape, x.shape, dtype) for name, dtype in zip(names, o.dtypes, strict=True))


def _argmax(b: GraphBuilder, o: Operation, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    x = x if dim is not None else b.reshape(x, (math.prod(x.shape),))
    return of_node(b, o, "ArgMax", x, axis=(dim or 0) % len(x.shape), keepdims=int(keepdim))


# By the name of an operation, or by its family: those that compute, those that put numbers elsewhere, and longer ones.
HANDLERS: dict[str, Handler] = {
    **{name: partial(each, name.capitalize()) for name in _NAMESAKES},
    **{name: partial(each, kind) for name, kind in _LOGIC.items()},
    "leaky_relu": lambda b, o, x, slope: each("LeakyRelu", b, o, x, alpha=float(slope)),
    "gelu": lambda b, o, x, approximate="none": each("Gelu", b, o, x, approximate=approximate),
    "rsqrt": lambda b, o, x: each("Reciprocal", b, o, each("Sqrt", b, o, x)),
    "exp2": lambda b, o, x: each("Exp", b, o, each("Mul", b, o, x, math.log(2))),
    "pow": lambda b, o, x, y: each("Mul", b, o, x, x) if y == 2 else each("Pow", b, o, x, y),
    "cumsum": lambda b, o, x, dim: of_node(b, o, "CumSum", x, b.constant(np.array(dim % len(x.shape)))),
    "_softmax": lambda b, o, x, dim, half: of_node(b, o, "Softmax", x, axis=dim % len(x.shape)),
    "addmm": lambda b, o, bias, x, y: _on_rows(b, "Add", b.matmul(x, y, o.shapes[0]), bias),
    "where": lambda b, o, given, x, y: each("Where", b, o, given, *(as_value(b, side, o.dtypes[0]) for side in (x, y))),
    **dict.fromkeys(("mm", "bmm"), lambda b, o, x, y: b.matmul(x, y, o.shapes[0])),
    "<built-in function getitem>": lambda b, o, several, index: several[index],
    "_to_copy": lambda b, o, x, **others: b.cast(x, o.dtypes[0]),
    "permute": lambda b, o, x, order: b.permute(x, order),
    "expand": lambda b, o, x, *others, **more: b.expand(x, o.shapes[0]),
    "index_select": lambda b, o, x, dim, index: of_node(b, o, "Gather", x, index, axis=dim % len(x.shape)),
    "gather": lambda b, o, x, dim, index, **others: of_node(b, o, "GatherElements", x, index, axis=dim % len(x.shape)),
    "cat": lambda b, o, parts, dim: of_node(b, o, "Concat", *parts, axis=dim % len(o.shapes[0])),
    **dict.fromkeys(("clone", "detach", "alias", "lift_fresh_copy", "contiguous"), lambda b, o, x, **others: x),
    **dict.fromkeys(_RESHAPES, lambda b, o, x, *others: b.reshape(x, o.shapes[0])),
    **dict.fromkeys(_ARITHMETIC, _arithmetic),
    **dict.fromkeys((*_COMPARISONS, "ne"), _comparison),
    **dict.fromkeys(("clamp", "hardtanh"), _clamp),
    **dict.fromkeys(("sum", "mean", "amax", "amin", "any", "all"), _reduce),
    "var_mean": _var_mean,
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), _batch_norm),
    "convolution": _convolution,
    **dict.fromkeys(("avg_pool2d", "max_pool2d_with_indices"), _pool),
    "log1p": _log1p,
    "repeat": _repeat,
    **dict.fromkeys(_FILLS, _filled),
    "constant_pad_nd": _pad,
    "slice": _slice,
    "select": _select,
    "unbind": _unbind,
    "index": _index,
    **dict.fromkeys(("scatter_add", "scatter"), _scatter),
    "sort": _sort,
    "argmax": _argmax,
}
