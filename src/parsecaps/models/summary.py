"""The layers of a model and their cost: the paper's capsule table, counted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.heads import Bottleneck, ConceptLayer
from parsecaps.nn.recorder import hooked
from parsecaps.types import Grid

TOTAL, TOTAL_WITHOUT_DECODER = "total", "total without decoder"
_HEADINGS = ("layer", "n", "d", "parameters", "FLOPs")

_NAMES = {
    "initial": "initial block",
    "context": "context",
    "primary": "primary capsules",
    "norm": "top normalisation",
    "concepts": "concept layer",
}


@dataclass(frozen=True)
class LayerRow:
    """One layer, which outputs `n` capsules of `d` numbers (None if it outputs no capsules).

    `flops` of one image: two for each multiply-add of a convolution or matrix product; elementwise work is not counted.
    """

    name: str
    n: int | None
    d: int | None
    parameters: int
    flops: int


def summarize(model: PretrainedModel) -> list[LayerRow]:
    """One row per layer in the order of the data flow, then the totals; the last row is the whole model.

    >>> from parsecaps.models import ParseCaps
    >>> rows = summarize(ParseCaps.from_preset("digits", num_classes=10))
    >>> [(row.name, row.n, row.d) for row in rows[1:4]]
    [('primary capsules', 196, 2), ('block 1 cell 1', 49, 4), ('block 2 cell 1', 16, 8)]
    """
    layers = list(_layers(model))
    flops, shapes = _measure(model, {path: module for path, _, module in layers})
    rows = []
    for path, name, module in layers:
        n, d = shapes.get(path, (None, None))
        parameters = sum(p.numel() for p in module.parameters())
        if parameters or flops[path]:
            rows.append(LayerRow(name, n, d, parameters, flops[path]))
    own = sum(p.numel() for p in model.parameters(recurse=False))
    if own:
        rows.append(LayerRow("other parameters", None, None, own, 0))
    lean = [row for row in rows if row.name != "decoder"]
    decoder = [row for row in rows if row.name == "decoder"]
    totals = [_total(TOTAL_WITHOUT_DECODER, lean)] if decoder else []
    return [*lean, *decoder, *totals, _total(TOTAL, rows)]


def layer_table(rows: Sequence[LayerRow], title: str) -> Grid:
    """The layers of a model, then the totals."""
    totals = sum(row.name.startswith(TOTAL) for row in rows)
    return Grid(title, _HEADINGS, [_cells(row) for row in rows], totals=totals)


def _cells(row: LayerRow) -> tuple[str, ...]:
    return (row.name, *("" if each is None else f"{each:,}" for each in (row.n, row.d, row.parameters, row.flops)))


class ParameterCount(NamedTuple):
    """The parameters that predictions use, and those of the decoder.

    >>> from parsecaps.rivals import EfficientCapsNet
    >>> print(count_parameters(EfficientCapsNet.from_preset("digits", num_classes=10)))
    161,824 (+ 1,411,344 in the decoder)
    """

    predicting: int
    decoder: int

    def __str__(self) -> str:
        return f"{self.predicting:,}" + (f" (+ {self.decoder:,} in the decoder)" if self.decoder else "")


def count_parameters(model: nn.Module) -> ParameterCount:
    """Count the trained numbers of a model."""
    decoder = getattr(model, "decoder", None)
    drawing = 0 if decoder is None else sum(weight.numel() for weight in decoder.parameters())
    return ParameterCount(sum(weight.numel() for weight in model.parameters()) - drawing, drawing)


def count_flops(model: PretrainedModel) -> int:
    """What classifying one image costs, without the decoder, as in `LayerRow`."""
    rows = {row.name: row for row in summarize(model)}
    return rows.get(TOTAL_WITHOUT_DECODER, rows[TOTAL]).flops


def format_summary(rows: Sequence[LayerRow]) -> str:
    """The rows as plain text, one line each, below a line of headings.

    >>> print(format_summary([LayerRow("primary capsules", 784, 8, 528, 802816)]))
    layer               n  d  parameters    FLOPs
    primary capsules  784  8         528  802,816
    """
    cells = [_HEADINGS, *map(_cells, rows)]
    first, *rest = (max(map(len, column)) for column in zip(*cells, strict=True))
    return "\n".join("  ".join([name.ljust(first), *map(str.rjust, numbers, rest)]) for name, *numbers in cells)


def _layers(model: nn.Module) -> Iterator[tuple[str, str, nn.Module]]:
    for path, module in model.named_children():
        if path == "blocks":
            for i, block in enumerate(module.children()):
                for j, cell in enumerate(block.children()):
                    yield f"blocks.{i}.{j}", f"block {i + 1} cell {j + 1}", cell
        elif isinstance(module, nn.ModuleList):
            for i, each in enumerate(module):
                yield f"{path}.{i}", f"{path.removesuffix('s')} {i + 1}", each
        elif path == "classes":
            linear = "classes" if isinstance(module, nn.Linear) else type(module).__name__
            yield path, linear if isinstance(module, nn.Linear | Bottleneck) else "class capsules", module
        else:
            yield path, _NAMES.get(path, path), module


def _measure(model: PretrainedModel, layers: dict[str, nn.Module]) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
    """Classify one black image; return the FLOPs of each layer, and n and d of those that give capsules."""
    shapes: dict[str, tuple[int, int]] = {}
    paths = {module: path for path, module in layers.items()}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        capsules = [o for o in outputs if isinstance(o, Tensor) and o.dim() == 3]
        if capsules:
            shapes[paths[module]] = (capsules[0].shape[1], capsules[0].shape[2])

    parameter = next(model.parameters())
    size = (1, model.in_channels, model.image_size, model.image_size)
    image = torch.zeros(size, dtype=parameter.dtype, device=parameter.device)
    was_training = model.training
    try:
        model.eval()
        with hooked(paths, note), torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(image, reconstruct=model.decoder is not None)
    finally:
        model.train(was_training)
    counted = counter.get_flop_counts()
    root = type(model).__name__
    return {
        path: sum(counted.get(f"{root}.{path}", {}).values()) + _elementwise(module) for path, module in layers.items()
    }, shapes


def _elementwise(layer: nn.Module) -> int:
    # matrix products written as products and sums of elements, which the counter does not see
    if isinstance(layer, Bottleneck):
        return 2 * layer.weight.numel()
    if isinstance(layer, ConceptLayer):
        return 2 * layer.to_global.numel()
    return 0


def _total(name: str, rows: Sequence[LayerRow]) -> LayerRow:
    return LayerRow(name, None, None, sum(row.parameters for row in rows), sum(row.flops for row in rows))
