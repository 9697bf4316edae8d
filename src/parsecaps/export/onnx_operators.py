"""From the operations of PyTorch to a graph of ONNX, one after the other; here those that put numbers elsewhere."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from parsecaps.export.onnx_builder import GraphBuilder, Value
from parsecaps.export.onnx_numbers import HANDLERS, Results, as_value, family, handles, of_node
from parsecaps.export.tracing import Operation, Traced


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
        handler = HANDLERS.get(operation.name) or HANDLERS.get(family(operation.name))
        if handler is None:
            raise ValueError(f"the network uses {operation.name}, which cannot be exported to ONNX")
        given = {key: value(argument) for key, argument in operation.kwargs.items()}
        found[operation] = handler(builder, operation, *map(value, operation.args), **given)
    return builder, {name: value(output) for name, output in zip(names, traced.outputs, strict=True)}


HANDLERS |= {  # those that are one call
    "<built-in function getitem>": lambda b, o, several, index: several[index],
    "_to_copy": lambda b, o, x, **others: b.cast(x, o.dtypes[0]),
    "permute": lambda b, o, x, order: b.permute(x, order),
    "expand": lambda b, o, x, *others, **more: b.expand(x, o.shapes[0]),
    "index_select": lambda b, o, x, dim, index: of_node(b, o, "Gather", x, index, axis=dim % len(x.shape)),
    "gather": lambda b, o, x, dim, index, **others: of_node(b, o, "GatherElements", x, index, axis=dim % len(x.shape)),
    **dict.fromkeys(("clone", "detach", "alias", "lift_fresh_copy", "contiguous"), lambda b, o, x, **others: x),
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape", "unsqueeze", "squeeze"), lambda b, o, x, *others: b.reshape(x, o.shapes[0])
    ),
}


@handles("transpose", "t")
def _transpose(b: GraphBuilder, o: Operation, x: Value, first: int = 0, second: int = 1) -> Value:
    order = list(range(len(x.shape)))
    if len(order) > 1:
        order[first], order[second] = order[second], order[first]
    return b.permute(x, order)


@handles("repeat")
def _repeat(b: GraphBuilder, o: Operation, x: Value, times: Sequence[int]) -> Value:
    x = b.reshape(x, (1,) * (len(times) - len(x.shape)) + x.shape)
    return of_node(b, o, "Tile", x, b.shape_of(tuple(times)))


@handles("new_zeros", "zeros", "zeros_like", "ones", "ones_like", "new_ones")
def _filled(b: GraphBuilder, o: Operation, *others: Any, **more: Any) -> Value:
    number = b.value_of(torch.tensor("ones" in o.name, dtype=o.dtypes[0]))
    return b.expand(number, o.shapes[0])


@handles("full", "full_like", "new_full")
def _full(b: GraphBuilder, o: Operation, like: Any, *others: Any, **more: Any) -> Value:
    return b.expand(b.value_of(torch.tensor(others[-1], dtype=o.dtypes[0])), o.shapes[0])


@handles("constant_pad_nd")
def _pad(b: GraphBuilder, o: Operation, x: Value, padding: Sequence[int], number: float = 0) -> Value:
    rank = len(x.shape)
    pads = [0] * (2 * rank)
    for i in range(len(padding) // 2):
        pads[rank - 1 - i], pads[2 * rank - 1 - i] = padding[2 * i], padding[2 * i + 1]
    return of_node(b, o, "Pad", x, b.constant(pads), as_value(b, number, x.dtype))


@handles("slice")
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
    return of_node(b, o, "Slice", x, *(b.constant([each]) for each in ends))


@handles("select")
def _select(b: GraphBuilder, o: Operation, x: Value, dim: int, index: int) -> Value:
    dim = dim % len(x.shape)
    if x.shape[dim] == 1:
        return b.reshape(x, o.shapes[0])
    return of_node(b, o, "Gather", x, b.constant(np.array(index % x.shape[dim])), axis=dim)


@handles("unbind")
def _unbind(b: GraphBuilder, o: Operation, x: Value, dim: int = 0) -> tuple[Value, ...]:
    dim, x = dim % len(x.shape), b.full(x)
    names = [b.node("Gather", x.name, b.constant(np.array(i)), axis=dim)[0] for i in range(x.shape[dim])]
    return tuple(Value(name, shape, shape, x.dtype) for name, shape in zip(names, o.shapes, strict=True))


@handles("index")
def _index(b: GraphBuilder, o: Operation, x: Value, indices: Sequence[Value | None]) -> Value:
    places = [dim for dim, index in enumerate(indices) if index is not None]
    if len(places) != 1 or (index := indices[places[0]]) is None or index.dtype != torch.int64:
        raise ValueError("the network picks from several axes at once, which cannot be exported to ONNX")
    return of_node(b, o, "Gather", x, index, axis=places[0])


@handles("scatter_add", "scatter")
def _scatter(b: GraphBuilder, o: Operation, x: Value, dim: int, index: Value, source: Any, **others: Any) -> Value:
    if not isinstance(source, Value) or others:
        raise ValueError(f"the network uses {o.name} with a number, which cannot be exported to ONNX")
    reduction = {"reduction": "add"} if family(o.name) == "scatter_add" else {}
    return of_node(b, o, "ScatterElements", x, index, source, axis=dim % len(x.shape), **reduction)


@handles("cat", "stack")
def _join(b: GraphBuilder, o: Operation, parts: Sequence[Value], dim: int = 0) -> Value:
    axis = dim % len(o.shapes[0])
    if family(o.name) == "stack":
        parts = [b.reshape(each, (*each.shape[:axis], 1, *each.shape[axis:])) for each in parts]
    return of_node(b, o, "Concat", *parts, axis=axis)


@handles("sort")
def _sort(b: GraphBuilder, o: Operation, x: Value, dim: int = -1, descending: bool = False) -> tuple[Value, ...]:
    axis = dim % len(x.shape)
    count = b.constant([x.shape[axis]])
    names = b.node("TopK", b.full(x).name, count, outputs=2, axis=axis, largest=int(descending), sorted=1)
    return tuple(Value(name, x.shape, x.shape, dtype) for name, dtype in zip(names, o.dtypes, strict=True))


@handles("argmax")
def _argmax(b: GraphBuilder, o: Operation, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    x = x if dim is not None else b.reshape(x, (math.prod(x.shape),))
    return of_node(b, o, "ArgMax", x, axis=(dim or 0) % len(x.shape), keepdims=int(keepdim))
