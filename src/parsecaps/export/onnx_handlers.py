"""Which function says what an operation of PyTorch is in ONNX: the table, and what these functions share."""

from collections.abc import Callable
from typing import Any

import torch

from parsecaps.export.onnx_builder import GraphBuilder, Value
from parsecaps.export.tracing import Operation

Results = Value | tuple[Value, ...]
Handler = Callable[..., Results]
HANDLERS: dict[str, Handler] = {}


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
