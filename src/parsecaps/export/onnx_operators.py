"""What each operation of PyTorch is in ONNX: one function for each kind, found by the operation's name."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from parsecaps.export.onnx_builder import GraphBuilder, Value
from parsecaps.export.tracing import Operation, Traced

Results = Value | tuple[Value, ...]
Handler = Callable[..., Results]
HANDLERS: dict[str, Handler] = {}

_ARITHMETIC = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min"}
_COMPARISONS = {"eq": "Equal", "gt": "Greater", "lt": "Less", "ge": "GreaterOrEqual", "le": "LessOrEqual"}
_LOGIC = {"bitwise_and": "And", "bitwise_or": "Or", "logical_and": "And", "logical_or": "Or"}
_ALONE = {
    "abs": "Abs",
    "erf": "Erf",
    "exp": "Exp",
    "gelu": "Gelu",
    "log": "Log",
    "neg": "Neg",
    "reciprocal": "Reciprocal",
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "bitwise_not": "Not",
    "logical_not": "Not",
}
_SAME = ("clone", "detach", "alias", "lift_fresh_copy", "contiguous")
_VIEWS = ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze")


def translate(traced: Traced, names: Sequence[str]) -> tuple[GraphBuilder, dict[str, Value]]:
    """The graph of a traced function, and its outputs by their names."""
    builder = GraphBuilder("image")
    (shape,) = traced.image.shapes
    found: dict[Operation, Results] = {traced.image: Value("image", shape, shape, torch.float32)}

    def value(argument: Any) -> Any:
        if isinstance(argument, Operation):
            if argument not in found:
                assert argument.value is not None
                found[argument] = builder.value_of(argument.value)
            return found[argument]
        return tuple(map(value, argument)) if isinstance(argument, tuple) else argument

    for operation in traced.operations:
        handler = HANDLERS.get(operation.name) or HANDLERS.get(_family(operation.name))
        if handler is None:
            raise ValueError(f"the network uses {operation.name}, which cannot be exported to ONNX")
        given = {key: value(argument) for key, argument in operation.kwargs.items()}
        found[operation] = handler(builder, operation, *map(value, operation.args), **given)
    return builder, {name: value(output) for name, output in zip(names, traced.outputs, strict=True)}


def _family(name: str) -> str:
    """The name without its overload, and without the mark of those that work in place: `aten.add_.Tensor` is `add`."""
    return name.removeprefix("aten.").split(".")[0].rstrip("_")


def _handles(*names: str) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def _as_value(b: GraphBuilder, x: Any, dtype: torch.dtype) -> Value:
    return b.cast(x, dtype) if isinstance(x, Value) else b.value_of(torch.tensor(x, dtype=dtype))


@_handles("<built-in function getitem>")
def _getitem(b: GraphBuilder, o: Operation, several: tuple[Value, ...], index: int) -> Value:
    return several[index]


@_handles(*_SAME)
def _same(b: GraphBuilder, o: Operation, x: Value, **others: Any) -> Value:
    return x


@_handles("_to_copy")
def _to_copy(b: GraphBuilder, o: Operation, x: Value, **others: Any) -> Value:
    return b.cast(x, o.dtypes[0])


@_handles(*_VIEWS)
def _view(b: GraphBuilder, o: Operation, x: Value, *others: Any) -> Value:
    return b.reshape(x, o.shapes[0])


@_handles("permute")
def _permute(b: GraphBuilder, o: Operation, x: Value, order: Sequence[int]) -> Value:
    return b.permute(x, order)


@_handles("transpose", "t")
def _transpose(b: GraphBuilder, o: Operation, x: Value, first: int = 0, second: int = 1) -> Value:
    order = list(range(len(x.shape)))
    if len(order) > 1:
        order[first], order[second] = order[second], order[first]
    return b.permute(x, order)


@_handles("expand")
def _expand(b: GraphBuilder, o: Operation, x: Value, *others: Any, **more: Any) -> Value:
    return b.expand(x, o.shapes[0])


@_handles("repeat")
def _repeat(b: GraphBuilder, o: Operation, x: Value, times: Sequence[int]) -> Value:
    x = b.full(b.reshape(x, (1,) * (len(times) - len(x.shape)) + x.shape))
    return _of_node(b, o, "Tile", x.name, b.shape_of(tuple(times)))


@_handles("new_zeros", "zeros", "zeros_like", "ones", "ones_like", "new_ones")
def _filled(b: GraphBuilder, o: Operation, *others: Any, **more: Any) -> Value:
    number = b.value_of(torch.tensor("ones" in o.name, dtype=o.dtypes[0]))
    return b.expand(number, o.shapes[0])


@_handles("full", "full_like", "new_full")
def _full(b: GraphBuilder, o: Operation, like: Any, *others: Any, **more: Any) -> Value:
    return b.expand(b.value_of(torch.tensor(others[-1], dtype=o.dtypes[0])), o.shapes[0])


@_handles(*_ARITHMETIC)
def _arithmetic(b: GraphBuilder, o: Operation, x: Any, y: Any, *, alpha: float = 1, **others: Any) -> Value:
    if any(mode is not None for mode in others.values()):
        raise ValueError(f"the network uses {o.name} with rounding, which cannot be exported to ONNX")
    dtype = o.dtypes[0]
    x, y = _as_value(b, x, dtype), _as_value(b, y, dtype)
    kind = _ARITHMETIC[_family(o.name)]
    if alpha == -1 and kind in ("Add", "Sub"):
        kind = "Sub" if kind == "Add" else "Add"
    elif alpha != 1:
        y = b.elementwise("Mul", [y, _as_value(b, alpha, dtype)], y.shape, dtype)
    return b.elementwise(kind, [x, y], o.shapes[0], dtype)


@_handles(*_COMPARISONS, "ne")
def _comparison(b: GraphBuilder, o: Operation, x: Value, y: Any) -> Value:
    dtype = torch.promote_types(x.dtype, y.dtype) if isinstance(y, Value) else x.dtype
    values = [_as_value(b, x, dtype), _as_value(b, y, dtype)]
    kind = _COMPARISONS.get(_family(o.name), "Equal")
    equal = b.elementwise(kind, values, o.shapes[0], torch.bool)
    return equal if _family(o.name) != "ne" else b.elementwise("Not", [equal], o.shapes[0], torch.bool)


@_handles(*_LOGIC)
def _logic(b: GraphBuilder, o: Operation, x: Value, y: Value) -> Value:
    return b.elementwise(_LOGIC[_family(o.name)], [x, y], o.shapes[0], torch.bool)


@_handles(*_ALONE)
def _alone(b: GraphBuilder, o: Operation, x: Value, **others: Any) -> Value:
    return b.elementwise(_ALONE[_family(o.name)], [x], o.shapes[0], o.dtypes[0], **others)


@_handles("gelu")
def _gelu(b: GraphBuilder, o: Operation, x: Value, approximate: str = "none") -> Value:
    return b.elementwise("Gelu", [x], o.shapes[0], o.dtypes[0], approximate=approximate)


@_handles("rsqrt")
def _rsqrt(b: GraphBuilder, o: Operation, x: Value) -> Value:
    root = b.elementwise("Sqrt", [x], o.shapes[0], x.dtype)
    return b.elementwise("Reciprocal", [root], o.shapes[0], x.dtype)


@_handles("exp2")
def _exp2(b: GraphBuilder, o: Operation, x: Value) -> Value:
    power = b.elementwise("Mul", [x, _as_value(b, math.log(2), x.dtype)], o.shapes[0], x.dtype)
    return b.elementwise("Exp", [power], o.shapes[0], x.dtype)


@_handles("pow")
def _pow(b: GraphBuilder, o: Operation, x: Value, exponent: float) -> Value:
    if exponent == 2:
        return b.elementwise("Mul", [x, x], o.shapes[0], x.dtype)
    return b.elementwise("Pow", [x, _as_value(b, exponent, x.dtype)], o.shapes[0], x.dtype)


@_handles("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(b: GraphBuilder, o: Operation, x: Value, low: Any = None, high: Any = None, **ends: Any) -> Value:
    if _family(o.name) == "clamp_max":
        low, high = None, low
    for kind, end in (("Max", ends.get("min", low)), ("Min", ends.get("max", high))):
        if kind == "Max" and end == 0:
            x = b.elementwise("Relu", [x], x.shape, x.dtype)
        elif end is not None:
            x = b.elementwise(kind, [x, _as_value(b, end, x.dtype)], x.shape, x.dtype)
    return x


@_handles("where")
def _where(b: GraphBuilder, o: Operation, condition: Value, x: Any, y: Any) -> Value:
    dtype = o.dtypes[0]
    return b.elementwise("Where", [condition, _as_value(b, x, dtype), _as_value(b, y, dtype)], o.shapes[0], dtype)


@_handles("mm", "bmm")
def _matmul(b: GraphBuilder, o: Operation, x: Value, y: Value) -> Value:
    return b.matmul(x, y, o.shapes[0])


@_handles("addmm")
def _addmm(b: GraphBuilder, o: Operation, bias: Value, x: Value, y: Value) -> Value:
    product = b.matmul(x, y, o.shapes[0])
    return _on_rows(b, "Add", product, bias)


def _on_rows(b: GraphBuilder, kind: str, x: Value, row: Value) -> Value:
    """An operation of each row of `x` with one row, in the shape that `x` had before its rows were put together."""
    root = x.root if x.root is not None and x.root.shape[-1] == x.shape[-1] else x
    if kind == "Mul":
        return b.reshape(b.scale_rows(root, row), x.shape)
    return b.reshape(b.elementwise(kind, [root, row], root.shape, x.dtype), x.shape)


@_handles("sum", "mean", "amax", "amin", "any", "all")
def _reduce(b: GraphBuilder, o: Operation, x: Value, dim: Any = None, keepdim: bool = False, **others: Any) -> Value:
    kind = {"sum": "Sum", "mean": "Mean", "amax": "Max", "amin": "Min", "any": "Max", "all": "Min"}[_family(o.name)]
    dims = range(len(x.shape)) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
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


@_handles("var_mean")
def _var_mean(
    b: GraphBuilder, o: Operation, x: Value, dim: Sequence[int], *, correction: float = 0, keepdim: bool = False
) -> tuple[Value, Value]:
    if correction or not keepdim:
        raise ValueError("the network takes another variance than layer normalisation does; it cannot be exported")
    shape = o.shapes[0]
    axes = b.constant([axis % len(x.shape) for axis in dim])
    x = b.full(x)
    mean = Value(b.node("ReduceMean", x.name, axes, keepdims=1)[0], shape, shape, x.dtype)
    rest = b.elementwise("Sub", [x, mean], x.shape, x.dtype)
    square = b.elementwise("Mul", [rest, rest], x.shape, x.dtype)
    return Value(b.node("ReduceMean", square.name, axes, keepdims=1)[0], shape, shape, x.dtype), mean


@_handles("cumsum")
def _cumsum(b: GraphBuilder, o: Operation, x: Value, dim: int) -> Value:
    x = b.full(x)
    return _of_node(b, o, "CumSum", x.name, b.constant(np.array(dim % len(x.shape))))


@_handles("argmax")
def _argmax(b: GraphBuilder, o: Operation, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    x = b.full(x if dim is not None else b.reshape(x, (math.prod(x.shape),)))
    return _of_node(b, o, "ArgMax", x.name, axis=(dim or 0) % len(x.shape), keepdims=int(keepdim))


@_handles("sort")
def _sort(b: GraphBuilder, o: Operation, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, ...]:
    axis = dim % len(x.shape)
    count = b.constant([x.shape[axis]])
    names = b.node("TopK", b.full(x).name, count, outputs=2, axis=axis, largest=int(descending), sorted=1)
    return tuple(Value(name, x.shape, x.shape, dtype) for name, dtype in zip(names, o.dtypes, strict=True))


@_handles("_softmax")
def _softmax(b: GraphBuilder, o: Operation, x: Value, dim: int, half: bool) -> Value:
    return _of_node(b, o, "Softmax", b.full(x).name, axis=dim % len(x.shape))


@_handles("native_batch_norm", "_native_batch_norm_legit_no_training")
def _batch_norm(
    b: GraphBuilder,
    o: Operation,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    var: Value,
    *more: Any,
) -> tuple[Value, ...]:
    eps = more[-1]
    ones, zeros = (b.value_of(fill(mean.shape)) for fill in (torch.ones, torch.zeros))
    scale, shift = ones if weight is None else weight, zeros if bias is None else bias
    if len(x.shape) > 2:  # behind a convolution, into which a runtime puts it
        given = (b.full(x).name, *(each.name for each in (scale, shift, mean, var)))
        return (_of_node(b, o, "BatchNormalization", *given, epsilon=eps),)
    numbers = [torch.from_numpy(b.constants[each.name]).double() for each in (scale, shift, mean, var)]
    factor = numbers[0] / (numbers[3] + eps).sqrt()
    rest = numbers[1] - numbers[2] * factor
    scaled = _on_rows(b, "Mul", x, b.value_of(factor.float()))
    return (_on_rows(b, "Add", scaled, b.value_of(rest.float())) if bool(rest.any()) else scaled,)


@_handles("convolution")
def _convolution(
    b: GraphBuilder,
    o: Operation,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    settings: dict[str, Any] = {
        "strides": tuple(stride),
        "pads": (*padding, *padding),
        "dilations": tuple(dilation),
        "group": groups,
    }
    if transposed:
        settings["output_padding"] = tuple(output_padding)
    names = [b.full(x).name, weight.name, *([] if bias is None else [bias.name])]
    return _of_node(b, o, "ConvTranspose" if transposed else "Conv", *names, **settings)


@_handles("avg_pool2d")
def _avg_pool(
    b: GraphBuilder,
    o: Operation,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    ceil_mode: bool = False,
    *others: Any,
) -> Value:
    if any(padding) or any(each not in (True, None) for each in others):
        raise ValueError("the network pools with padding, which cannot be exported to ONNX")
    steps = tuple(stride or kernel)
    return _of_node(
        b, o, "AveragePool", b.full(x).name, kernel_shape=tuple(kernel), strides=steps, ceil_mode=int(ceil_mode)
    )


@_handles("max_pool2d_with_indices")
def _max_pool(
    b: GraphBuilder,
    o: Operation,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    *others: Any,
) -> tuple[Value, ...]:
    settings = {"kernel_shape": tuple(kernel), "strides": tuple(stride or kernel), "pads": (*padding, *padding)}
    return (_of_node(b, o, "MaxPool", b.full(x).name, **settings),)


@_handles("constant_pad_nd")
def _pad(b: GraphBuilder, o: Operation, x: Value, padding: Sequence[int], number: float = 0) -> Value:
    rank = len(x.shape)
    pads = [0] * (2 * rank)
    for i in range(len(padding) // 2):
        pads[rank - 1 - i], pads[2 * rank - 1 - i] = padding[2 * i], padding[2 * i + 1]
    return _of_node(b, o, "Pad", b.full(x).name, b.constant(pads), _as_value(b, number, x.dtype).name)


@_handles("slice")
def _slice(
    b: GraphBuilder,
    o: Operation,
    x: Value,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Value:
    if x.shape == o.shapes[0]:
        return x
    ends = (start or 0, 2**63 - 1 if end is None else end, dim % len(x.shape), step)
    return _of_node(b, o, "Slice", b.full(x).name, *(b.constant([each]) for each in ends))


@_handles("select")
def _select(b: GraphBuilder, o: Operation, x: Value, dim: int, index: int) -> Value:
    dim = dim % len(x.shape)
    if x.shape[dim] == 1:
        return b.reshape(x, o.shapes[0])
    return _of_node(b, o, "Gather", b.full(x).name, b.constant(np.array(index % x.shape[dim])), axis=dim)


@_handles("unbind")
def _unbind(b: GraphBuilder, o: Operation, x: Value, dim: int = 0) -> tuple[Value, ...]:
    dim, x = dim % len(x.shape), b.full(x)
    names = [b.node("Gather", x.name, b.constant(np.array(i)), axis=dim)[0] for i in range(x.shape[dim])]
    return tuple(Value(name, shape, shape, x.dtype) for name, shape in zip(names, o.shapes, strict=True))


@_handles("index_select")
def _index_select(b: GraphBuilder, o: Operation, x: Value, dim: int, index: Value) -> Value:
    return _of_node(b, o, "Gather", b.full(x).name, b.full(index).name, axis=dim % len(x.shape))


@_handles("index")
def _index(b: GraphBuilder, o: Operation, x: Value, indices: Sequence[Value | None]) -> Value:
    places = [dim for dim, index in enumerate(indices) if index is not None]
    if len(places) != 1 or (index := indices[places[0]]) is None or index.dtype != torch.int64:
        raise ValueError("the network picks from several axes at once, which cannot be exported to ONNX")
    return _of_node(b, o, "Gather", b.full(x).name, b.full(index).name, axis=places[0])


@_handles("gather")
def _gather(b: GraphBuilder, o: Operation, x: Value, dim: int, index: Value, **others: Any) -> Value:
    return _of_node(b, o, "GatherElements", b.full(x).name, b.full(index).name, axis=dim % len(x.shape))


@_handles("scatter_add", "scatter")
def _scatter(b: GraphBuilder, o: Operation, x: Value, dim: int, index: Value, source: Any, **others: Any) -> Value:
    if not isinstance(source, Value) or others:
        raise ValueError(f"the network uses {o.name} with a number, which cannot be exported to ONNX")
    reduction = {"reduction": "add"} if _family(o.name) == "scatter_add" else {}
    given = (b.full(each).name for each in (x, index, source))
    return _of_node(b, o, "ScatterElements", *given, axis=dim % len(x.shape), **reduction)


@_handles("cat", "stack")
def _join(b: GraphBuilder, o: Operation, parts: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % len(o.shapes[0])
    if _family(o.name) == "stack":
        parts = [b.reshape(each, (*each.shape[:axis], 1, *each.shape[axis:])) for each in parts]
    return _of_node(b, o, "Concat", *(b.full(each).name for each in parts), axis=axis)


def _of_node(b: GraphBuilder, o: Operation, kind: str, *inputs: str, **attributes: Any) -> Value:
    """The first result of a node whose inputs are there in full."""
    (name,) = b.node(kind, *inputs, **attributes)
    return Value(name, o.shapes[0], o.shapes[0], o.dtypes[0])


@_handles("log1p")
def _log1p(b: GraphBuilder, o: Operation, x: Value) -> Value:
    """`x log(y) / (y - 1)` with y = 1 + x as it is rounded, which keeps the digits that log(1 + x) has lost near 0."""
    one = _as_value(b, 1.0, x.dtype)

    def node(kind: str, *values: Value, dtype: torch.dtype = x.dtype) -> Value:
        return b.elementwise(kind, values, o.shapes[0], dtype)

    y = node("Add", x, one)
    rest = node("Sub", y, one)
    same = node("Equal", rest, _as_value(b, 0.0, x.dtype), dtype=torch.bool)
    return node("Where", same, x, node("Div", node("Mul", x, node("Log", y)), node("Where", same, one, rest)))
