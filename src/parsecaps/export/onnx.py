"""The model as one file for ONNX Runtime, with the maps along its routes if asked for.

`docs/export.md` says what the file holds. The export goes from PyTorch's operations to those of ONNX by itself
(`tracing`, `onnx_operators`) and not by `torch.onnx.export`, which cannot trace gradients. Given our traced graph, it
agrees to 5e-7 but takes 37 to 60 s instead of 7 to 12, gives 4,555 nodes instead of 1,225 and runs 1.5 times slower.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from parsecaps import __version__
from parsecaps.explain.attribution_path import has_tree, trace
from parsecaps.explain.evidence import tree_layers
from parsecaps.explain.route_maps import PrimaryGrid
from parsecaps.export.checking import check_onnx
from parsecaps.export.export import ExportFormat, ExportOptions, ExportSource
from parsecaps.export.graphs import ModelGraph, answer_graph, explained_graph
from parsecaps.export.onnx_operators import translate
from parsecaps.export.tracing import trace_function
from parsecaps.metrics import THRESHOLD
from parsecaps.model import Model

METADATA_KEY = "parsecaps"
METADATA_VERSION = 1


def write_onnx(model: Model, path: str | Path, *, maps: bool = False, trees: bool = False) -> ModelGraph:
    """Write the model as an ONNX file, which is not checked yet; gives what was written, as a function of PyTorch.

    With `maps`, or `trees`, which have maps too, the graph is of one image; without, of any number.
    """
    import onnx

    graph = explained_graph(model, trees) if maps or trees else answer_graph(model)
    preparation = model.preparation
    size = (preparation.channels, preparation.size, preparation.size)
    example = torch.rand(1, *size, generator=torch.Generator().manual_seed(1))
    names: list[str] = []

    def results(image: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = graph.function(image)
        names[:] = found
        return tuple(found.values())

    traced = trace_function(results, example, graph.any_batch)
    builder, outputs = translate(traced, names)
    described = json.dumps({**metadata(model), "batch": None if graph.any_batch else 1, "outputs": names})
    written = builder.model((-1 if graph.any_batch else 1, *size), outputs, {METADATA_KEY: described})
    onnx.checker.check_model(written)
    Path(path).write_bytes(written.SerializeToString())
    return graph


def metadata(model: Model) -> dict[str, Any]:
    """All that is to be known of a model beside its numbers, ready for JSON (`docs/export.md`)."""
    network, calibration = model.network, model.calibration
    reasoning, by_image = model.reasoning, model.reasoning_by_image
    thresholds = [THRESHOLD] * len(model.concepts) if reasoning is None else reasoning.threshold.tolist()
    return {
        "version": METADATA_VERSION,
        "parsecaps": __version__,
        "kind": type(network).__name__,
        "classes": list(model.classes),
        "concepts": list(model.concepts),
        "preparation": model.preparation.to_dict(),
        "temperature": calibration.temperature,
        "calibration_note": calibration.note,
        "quantiles": None if calibration.quantiles is None else asdict(calibration.quantiles),
        "reasoning": None if reasoning is None else reasoning.as_dict(),
        "reasoning_by_image": None if by_image is None else by_image.as_dict(),
        "thresholds": thresholds,
        **_grids(model),
    }


def _grids(model: Model) -> dict[str, Any]:
    """The widths of the grids of a parse tree's levels, from the primary one up, and where the primary one lies."""
    network, preparation = model.network, model.preparation
    if not has_tree(network):
        return {"widths": None, "grid": None}
    image = torch.zeros(1, preparation.channels, preparation.size, preparation.size).to(model.device)
    traced = trace(network.eval(), image)
    widths = [traced.widths[layer] for layer in tree_layers(traced.cells)]
    return {"widths": widths, "grid": asdict(PrimaryGrid.of(traced.initial, preparation.size))}


def _write(source: ExportSource, path: Path, options: ExportOptions) -> list[str]:
    import onnxruntime  # noqa: F401 (the check needs it, and to say so after the work would be late)

    graph = write_onnx(source.model, path, maps=bool(options.maps))
    holds, lines = check_onnx(path, graph, source)
    return [f"{path.stat().st_size / 1e6:.1f} MB for ONNX Runtime, {holds}", *lines]


FORMAT = ExportFormat(
    name="onnx",
    purpose="ONNX Runtime, in any language and without this package",
    needs="pip install 'parsecaps[export]'; with --maps a model with a tree of cells, such as ParseCaps",
    gives="one file: logits, calibrated probabilities and presences for any number of images; with --maps also the "
    "maps along the routes, for one image at a time",
    suffix=".onnx",
    write=_write,
)
