"""Operations of PyTorch that compute, in ONNX: arithmetic, sums, products of matrices, and layers.

`HANDLERS` says which function translates an operation, by its name or its family.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from parsecaps.export.onnx_builder import GraphBuilder, Value
from parsecaps.export.tracing import Operation

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


def family(name: str) -> str:
    """The name without its overload, and without the mark of those that work in place: `aten.add_.Tensor` is `add`."""
    return name.removeprefix("aten.").split(".")[0].rstrip("_")


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Puts a function into the table for operations of these families."""

    def register(handler: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, handler))
        return handler

    return register


def as_value(b: GraphBuilder, x: Any, dtype: torch.dtype) -> Value:
    """A value in this type, or a number as one."""
    return b.cast(x, dtype) if isinstance(x, Value) else b.value_of(torch.tensor(x, dtype=dtype))


def of_node(b: GraphBuilder, o: Operation, kind: str, *inputs: str, **attributes: Any) -> Value:
    """The first result of a node whose inputs are there in full."""
    (name,) = b.node(kind, *inputs, **attributes)
    return Value(name, o.shapes[0], o.shapes[0], o.dtypes[0])


@handles(*_ARITHMETIC)
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
    return b.elementwise(kind, [x, y], o.shapes[0], dtype)


@handles(*_COMPARISONS, "ne")
def _comparison(b: GraphBuilder, o: Operation, x: Value, y: Any) -> Value:
    dtype = torch.promote_types(x.dtype, y.dtype) if isinstance(y, Value) else x.dtype
    values = [as_value(b, x, dtype), as_value(b, y, dtype)]
    kind = _COMPARISONS.get(family(o.name), "Equal")
    equal = b.elementwise(kind, values, o.shapes[0], torch.bool)
    return equal if family(o.name) != "ne" else b.elementwise("Not", [equal], o.shapes[0], torch.bool)


@handles(*_LOGIC)
def _logic(b: GraphBuilder, o: Operation, x: Value, y: Value) -> Value:
    return b.elementwise(_LOGIC[family(o.name)], [x, y], o.shapes[0], torch.bool)


@handles(*_ALONE)
def _alone(b: GraphBuilder, o: Operation, x: Value, **others: Any) -> Value:
    return b.elementwise(_ALONE[family(o.name)], [x], o.shapes[0], o.dtypes[0], **others)


@handles("leaky_relu")
def _leaky_relu(b: GraphBuilder, o: Operation, x: Value, slope: float = 0.01) -> Value:
    return b.elementwise("LeakyRelu", [x], o.shapes[0], o.dtypes[0], alpha=float(slope))


@handles("gelu")
def _gelu(b: GraphBuilder, o: Operation, x: Value, approximate: str = "none") -> Value:
    return b.elementwise("Gelu", [x], o.shapes[0], o.dtypes[0], approximate=approximate)


@handles("rsqrt")
def _rsqrt(b: GraphBuilder, o: Operation, x: Value) -> Value:
    root = b.elementwise("Sqrt", [x], o.shapes[0], x.dtype)
    return b.elementwise("Reciprocal", [root], o.shapes[0], x.dtype)


@handles("exp2")
def _exp2(b: GraphBuilder, o: Operation, x: Value) -> Value:
    power = b.elementwise("Mul", [x, as_value(b, math.log(2), x.dtype)], o.shapes[0], x.dtype)
    return b.elementwise("Exp", [power], o.shapes[0], x.dtype)


@handles("pow")
def _pow(b: GraphBuilder, o: Operation, x: Value, exponent: float) -> Value:
    if exponent == 2:
        return b.elementwise("Mul", [x, x], o.shapes[0], x.dtype)
    return b.elementwise("Pow", [x, as_value(b, exponent, x.dtype)], o.shapes[0], x.dtype)


@handles("clamp", "clamp_min", "clamp_max", "hardtanh")
def _clamp(b: GraphBuilder, o: Operation, x: Value, low: Any = None, high: Any = None, **ends: Any) -> Value:
    if family(o.name) == "clamp_max":
        low, high = None, low
    for kind, end in (("Max", ends.get("min", low)), ("Min", ends.get("max", high))):
        if kind == "Max" and end == 0:
            x = b.elementwise("Relu", [x], x.shape, x.dtype)
        elif end is not None:
            x = b.elementwise(kind, [x, as_value(b, end, x.dtype)], x.shape, x.dtype)
    return x


@handles("where")
def _where(b: GraphBuilder, o: Operation, condition: Value, x: Any, y: Any) -> Value:
    dtype = o.dtypes[0]
    return b.elementwise("Where", [condition, as_value(b, x, dtype), as_value(b, y, dtype)], o.shapes[0], dtype)


@handles("mm", "bmm")
def _matmul(b: GraphBuilder, o: Operation, x: Value, y: Value) -> Value:
    return b.matmul(x, y, o.shapes[0])


@handles("addmm")
def _addmm(b: GraphBuilder, o: Operation, bias: Value, x: Value, y: Value) -> Value:
    product = b.matmul(x, y, o.shapes[0])
    return _on_rows(b, "Add", product, bias)


@handles("baddbmm")
def _baddbmm(
    b: GraphBuilder, o: Operation, bias: Value, x: Value, y: Value, *, beta: float = 1, alpha: float = 1
) -> Value:
    scaled = [
        part if factor == 1 else b.elementwise("Mul", [part, as_value(b, factor, part.dtype)], part.shape, part.dtype)
        for part, factor in ((bias, beta), (b.matmul(x, y, o.shapes[0]), alpha))
    ]
    return b.elementwise("Add", scaled, o.shapes[0], o.dtypes[0])


def _on_rows(b: GraphBuilder, kind: str, x: Value, row: Value) -> Value:
    """An operation of each row of `x` with one row, in the shape that `x` had before its rows were put together."""
    root = x.root if x.root is not None and x.root.shape[-1] == x.shape[-1] else x
    if kind == "Mul":
        return b.reshape(b.scale_rows(root, row), x.shape)
    return b.reshape(b.elementwise(kind, [root, row], root.shape, x.dtype), x.shape)


@handles("sum", "mean", "amax", "amin", "any", "all")
def _reduce(b: GraphBuilder, o: Operation, x: Value, dim: Any = None, keepdim: bool = False, **others: Any) -> Value:
    kind = {"sum": "Sum", "mean": "Mean", "amax": "Max", "amin": "Min", "any": "Max", "all": "Min"}[family(o.name)]
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


@handles("var_mean")
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


@handles("cumsum")
def _cumsum(b: GraphBuilder, o: Operation, x: Value, dim: int) -> Value:
    x = b.full(x)
    return of_node(b, o, "CumSum", x.name, b.constant(np.array(dim % len(x.shape))))


@handles("_softmax")
def _softmax(b: GraphBuilder, o: Operation, x: Value, dim: int, half: bool) -> Value:
    return of_node(b, o, "Softmax", b.full(x).name, axis=dim % len(x.shape))


@handles("native_batch_norm", "_native_batch_norm_legit_no_training")
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
        return (of_node(b, o, "BatchNormalization", *given, epsilon=eps),)
    numbers = [torch.from_numpy(b.constants[each.name]).double() for each in (scale, shift, mean, var)]
    factor = numbers[0] / (numbers[3] + eps).sqrt()
    rest = numbers[1] - numbers[2] * factor
    scaled = _on_rows(b, "Mul", x, b.value_of(factor.float()))
    return (_on_rows(b, "Add", scaled, b.value_of(rest.float())) if bool(rest.any()) else scaled,)


@handles("convolution")
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
    return of_node(b, o, "ConvTranspose" if transposed else "Conv", *names, **settings)


@handles("avg_pool2d")
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
    return of_node(
        b, o, "AveragePool", b.full(x).name, kernel_shape=tuple(kernel), strides=steps, ceil_mode=int(ceil_mode)
    )


@handles("max_pool2d_with_indices")
def _max_pool(
    b: GraphBuilder,
    o: Operation,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
) -> tuple[Value, ...]:
    settings = {
        "kernel_shape": tuple(kernel),
        "strides": tuple(stride or kernel),
        "pads": (*padding, *padding),
        "dilations": tuple(dilation),
        "ceil_mode": int(ceil_mode),
    }
    return (of_node(b, o, "MaxPool", b.full(x).name, **settings),)


@handles("log1p")
def _log1p(b: GraphBuilder, o: Operation, x: Value) -> Value:
    """`x log(y) / (y - 1)` with y = 1 + x as it is rounded, which keeps the digits that log(1 + x) has lost near 0."""
    one = as_value(b, 1.0, x.dtype)

    def node(kind: str, *values: Value, dtype: torch.dtype = x.dtype) -> Value:
        return b.elementwise(kind, values, o.shapes[0], dtype)

    y = node("Add", x, one)
    rest = node("Sub", y, one)
    same = node("Equal", rest, as_value(b, 0.0, x.dtype), dtype=torch.bool)
    return node("Where", same, x, node("Div", node("Mul", x, node("Log", y)), node("Where", same, one, rest)))
