"""From the operations of PyTorch to a graph of ONNX, one after the other."""

from collections.abc import Sequence
from typing import Any

import torch

from parsecaps.export import onnx_numbers, onnx_places  # noqa: F401 (they fill the table)
from parsecaps.export.onnx_builder import GraphBuilder, Value
from parsecaps.export.onnx_handlers import HANDLERS, Results, family
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
