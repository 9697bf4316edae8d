"""An ONNX graph that grows node by node, and keeps no more than it needs.

The same node on the same inputs is made once, the same constant is kept once, and what no output needs is left out.
Reshapes of reshapes are one, and a tensor that PyTorch expands stays as small as it is where ONNX broadcasts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parsecaps.export.tracing import Shape

OPSET = 20
_IR_VERSION = 10  # of the same release as the opset; older runtimes refuse newer files


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of the graph: `shape` is what it stands for, `actual` what it has, which broadcasts to it.

    `root` is the value that this is a reshape of; `permuted` the value, and the order of its axes, that it is.
    """

    name: str
    shape: Shape
    actual: Shape
    dtype: torch.dtype
    root: "Value | None" = None
    permuted: "tuple[Value, tuple[int, ...]] | None" = None


class GraphBuilder:
    """The nodes and constants of one graph; `image` is its input."""

    def __init__(self, image: str) -> None:
        self.image = image
        self.nodes: list[tuple[str, tuple[str, ...], dict[str, Any], tuple[str, ...]]] = []
        self.constants: dict[str, np.ndarray] = {}
        self._made: dict[Any, tuple[str, ...]] = {}
        self._kept: dict[Any, str] = {}
        self._makers: dict[str, tuple[str, tuple[str, ...]]] = {}

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> tuple[str, ...]:
        """Names of a node's outputs; an equal node is reused."""
        attributes = {name: tuple(each) if isinstance(each, list) else each for name, each in attributes.items()}
        key = (kind, inputs, tuple(sorted(attributes.items())))
        if key not in self._made:
            number = len(self.nodes)
            names = tuple(f"{kind}_{number}" if not i else f"{kind}_{number}_{i}" for i in range(outputs))
            self.nodes.append((kind, inputs, attributes, names))
            self._made[key] = names
            self._makers.update(dict.fromkeys(names, (kind, inputs)))
        return self._made[key]

    def constant(self, value: Tensor | np.ndarray | Sequence[int]) -> str:
        """The name of a constant; a sequence of numbers is of 64-bit integers."""
        array = value.detach().contiguous().numpy() if isinstance(value, Tensor) else np.asarray(value)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._kept:
            name = f"constant_{len(self.constants)}"
            self.constants[name], self._kept[key] = array.copy(), name
        return self._kept[key]

    def squared(self, name: str) -> str | None:
        """The name of the tensor of which this is the square, if it is one."""
        kind, inputs = self._makers.get(name, ("", ()))
        return inputs[0] if kind == "Mul" and inputs[0] == inputs[1] else None

    def value_of(self, constant: Tensor) -> Value:
        shape = tuple(constant.shape)
        return Value(self.constant(constant), shape, shape, constant.dtype)

    def elementwise(self, kind: str, values: Sequence[Value], shape: Shape, dtype: torch.dtype, **attr: Any) -> Value:
        (name,) = self.node(kind, *(each.name for each in values), **attr)
        return Value(name, shape, broadcast([each.actual for each in values], len(shape)), dtype)

    def cast(self, value: Value, dtype: torch.dtype) -> Value:
        if value.dtype == dtype:
            return value
        return self.elementwise("Cast", [value], value.shape, dtype, to=onnx_type(dtype))

    def reshape(self, value: Value, shape: Shape) -> Value:
        """The same numbers in the same order."""
        root = value.root or value
        if root.shape == shape:
            return root
        if root.actual != root.shape:
            if (actual := _without_merging(root, shape)) is not None:
                return Value(self._reshaped(root, actual), shape, actual, value.dtype, root)
            root = self.full(root)
        return Value(self._reshaped(root, shape), shape, shape, value.dtype, value.root or value)

    def _reshaped(self, value: Value, shape: Shape) -> str:
        if value.actual == shape:
            return value.name
        if sum(size < 0 for size in shape) > 1:
            raise ValueError("two axes of a tensor grow with the batch; the network cannot be exported")
        return self.node("Reshape", value.name, self.constant([max(size, -1) for size in shape]))[0]

    def permute(self, value: Value, order: Sequence[int]) -> Value:
        order = tuple(axis % len(value.shape) for axis in order)
        if value.permuted is not None:
            value, before = value.permuted
            order = tuple(before[axis] for axis in order)
        shape, actual = (tuple(sizes[axis] for axis in order) for sizes in (value.shape, value.actual))
        if order == tuple(range(len(order))):
            return value
        if [axis for axis in order if value.shape[axis] != 1] == [i for i, size in enumerate(value.shape) if size != 1]:
            return self.reshape(value, shape)
        (name,) = self.node("Transpose", value.name, perm=order)
        return Value(name, shape, actual, value.dtype, permuted=(value, order))

    def expand(self, value: Value, shape: Shape) -> Value:
        """The value in a larger shape, without copying it."""
        if len(shape) > len(value.shape):
            value = self.reshape(value, (1,) * (len(shape) - len(value.shape)) + value.shape)
        return value if value.shape == shape else Value(value.name, shape, value.actual, value.dtype)

    def full(self, value: Value) -> Value:
        """The value, expanded to its whole shape."""
        if value.actual == value.shape:
            return value
        (name,) = self.node("Expand", value.name, self.shape_of(value.shape))
        return Value(name, value.shape, value.shape, value.dtype)

    def shape_of(self, shape: Shape) -> str:
        """The name of a tensor that holds a shape."""
        if all(size >= 0 for size in shape):
            return self.constant(shape)
        batch = self.node("Shape", self.image, start=0, end=1)[0]
        parts = []
        for size in shape:
            growing = batch if size == -1 else self.node("Mul", batch, self.constant([-size]))[0]
            parts.append(self.constant([size]) if size >= 0 else growing)
        return self.node("Concat", *parts, axis=0)[0]

    def matmul(self, a: Value, b: Value, shape: Shape) -> Value:
        """A product of matrices (..., n, d) and (..., d, m), or of rows and one matrix, with axes in front as is.

        PyTorch has all axes in front as one, and expands what is the same for all of them; ONNX needs neither.
        """
        front = a.shape[:-2]
        if len(shape) == 2:  # rows and one matrix: the rows may have come from several axes
            if a.root is not None and a.root.shape[-1] == a.shape[-1] and len(a.root.shape) > 1:
                a = a.root
            front = a.shape[:-2]
            a, b = self.full(a), self.full(b)
        else:
            for each in (a, b):
                if each.root is not None and each.root.shape[-2:] == each.shape[-2:]:
                    front = each.root.shape[:-2]
            a, b = (self._shrunk(self.reshape(each, (*front, *each.shape[-2:]))) for each in (a, b))
        a, b = self._without_scale(a, b)
        (name,) = self.node("MatMul", a.name, b.name)
        rows, columns = (a.shape[-2],), (b.shape[-1],)
        actual = broadcast([a.actual[:-2], b.actual[:-2]], len(front)) + rows + columns
        return self.reshape(Value(name, (*front, *rows, *columns), actual, a.dtype), shape)

    def scale_rows(self, value: Value, row: Value) -> Value:
        """Each row of a value times a constant one; where a constant matrix made the rows, another does it at once."""
        kind, inputs = self._makers.get(value.name, ("", ()))
        if kind == "MatMul" and (matrix := self.constants.get(inputs[1])) is not None and matrix.ndim == 2:
            (name,) = self.node("MatMul", inputs[0], self.constant(matrix * self.constants[row.name]))
            return Value(name, value.shape, value.actual, value.dtype)
        return self.elementwise("Mul", [value, row], value.shape, value.dtype)

    def _without_scale(self, a: Value, b: Value) -> tuple[Value, Value]:
        """A product with a constant matrix whose rows take up the constant that each column of `a` was scaled by."""
        kind, inputs = self._makers.get(a.name, ("", ()))
        matrix = self.constants.get(b.name)
        row = self.constants.get(inputs[1]) if kind == "Mul" else None
        if matrix is None or row is None or matrix.ndim != 2 or row.shape != matrix.shape[:1]:
            return a, b
        scaled = self.constant(row[:, None] * matrix)
        return Value(inputs[0], a.shape, a.actual, a.dtype), Value(scaled, b.shape, b.actual, b.dtype)

    def _shrunk(self, value: Value) -> Value:
        """A value whose axes in front are all of size 1, as a matrix; matrices themselves in full."""
        actual = value.actual
        if actual[-2:] != value.shape[-2:]:
            value = self.full(value)
        elif all(size == 1 for size in actual[:-2]) and len(actual) > 2 and actual != value.shape:
            return Value(self._reshaped(value, actual[-2:]), value.shape, actual[-2:], value.dtype)
        return value

    def model(self, size: Shape, outputs: dict[str, Value], metadata: dict[str, str]) -> Any:
        from onnx import helper, numpy_helper

        named: list[Any] = [("Identity", (self.full(value).name,), {}, (name,)) for name, value in outputs.items()]
        nodes = _needed([*self.nodes, *named], set(outputs))
        used = {name for _, inputs, _, _ in nodes for name in inputs}
        protos = [helper.make_node(kind, inputs, names, **attr) for kind, inputs, attr, names in nodes]

        def info(name: str, dtype: torch.dtype, shape: Shape) -> Any:
            sizes = ["batch" if each == -1 else each for each in shape]
            return helper.make_tensor_value_info(name, onnx_type(dtype), sizes)

        graph = helper.make_graph(
            protos,
            "parsecaps",
            [info(self.image, torch.float32, size)],
            [info(name, value.dtype, value.shape) for name, value in outputs.items()],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items() if name in used],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION)
        helper.set_model_props(model, metadata)
        return model


def broadcast(shapes: Sequence[Shape], rank: int) -> Shape:
    """The shape of several together, with ones in front up to `rank` axes.

    >>> broadcast([(1, 4), (-1, 3, 1)], 3)
    (-1, 3, 4)
    """
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(next((size for size in sizes if size != 1), 1) for sizes in zip(*padded, strict=True))


def onnx_type(dtype: torch.dtype) -> int:
    """The number by which ONNX knows a type."""
    from onnx import TensorProto

    known = {torch.float32: TensorProto.FLOAT, torch.int64: TensorProto.INT64, torch.bool: TensorProto.BOOL}
    if dtype not in known:
        raise ValueError(f"the network computes in {dtype}; only float32 can be exported")
    return int(known[dtype])


def _without_merging(value: Value, shape: Shape) -> Shape | None:
    """What an expanded value has in a shape that adds or drops axes of size 1 alone; None for another shape."""
    if [size for size in value.shape if size != 1] != [size for size in shape if size != 1]:
        return None
    sizes = iter(actual for actual, size in zip(value.actual, value.shape, strict=True) if size != 1)
    return tuple(1 if size == 1 else next(sizes) for size in shape)


def _needed(nodes: Sequence[Any], wanted: set[str]) -> list[Any]:
    kept = []
    for node in reversed(nodes):
        if wanted.intersection(node[3]):
            kept.append(node)
            wanted.update(node[1])
    return kept[::-1]
