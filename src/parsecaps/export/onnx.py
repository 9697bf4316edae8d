"""The model as one file for ONNX Runtime, with the maps along its routes and its parse trees if asked for.

`docs/export.md` says what the file holds. The export goes from PyTorch's operations to those of ONNX by itself
(`tracing`, `onnx_operators`) and not by `torch.onnx.export`, which cannot trace gradients. Given our traced graph, it
agrees to 5e-7 but takes 37 to 60 s instead of 7 to 12, gives 4,555 nodes instead of 1,225 and runs 1.5 times slower.
"""

import copy
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from parsecaps import __version__
from parsecaps.explain.attribution_path import AttributionPath, Target, describe_routes, has_tree, trace
from parsecaps.explain.evidence import evidence_flow, is_strict, tree_layers, tree_levels
from parsecaps.explain.route_maps import PrimaryGrid, route_maps
from parsecaps.export.checking import (
    arrays,
    compare_answers,
    compare_maps,
    compare_trees,
    maps_by_rounding,
    open_session,
    run,
)
from parsecaps.export.export import ExportFormat, ExportSource
from parsecaps.export.onnx_operators import translate
from parsecaps.export.tracing import trace_function
from parsecaps.metrics import THRESHOLD
from parsecaps.model import Model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.recorder import couplings_of
from parsecaps.nn.routes import RouteTree
from parsecaps.types import Output

METADATA_KEY = "parsecaps"
METADATA_VERSION = 1
PANELS = 24  # enough for all images measured (docs/explain.md): a graph cannot refine the path
EXPLAINED = 8  # validation cases whose maps are checked, beside the drawn images


@dataclass(frozen=True, eq=False)
class ModelGraph:
    """A function of prepared images (B, channels, size, size) in [0, 1] that gives its results by their names.

    `any_batch` says that B may be any number; otherwise it is 1.
    """

    function: Callable[[Tensor], dict[str, Tensor]]
    any_batch: bool


def answer_graph(model: Model) -> ModelGraph:
    """`logits` and `probabilities` (B, K), the latter calibrated, and `presence` (B, m) where there are concepts.

    Where each image has weights of its own by which logits grow with presences, they are `concept_weights` (B, K, m).
    """
    network = _frozen(model)

    @torch.no_grad()
    def answer(image: Tensor) -> dict[str, Tensor]:
        return _answer(model, network(image))

    return ModelGraph(answer, any_batch=True)


def explained_graph(model: Model, trees: bool) -> ModelGraph:
    """The answer to one image, and why.

    `maps` (1, m + 1, size, size) are the maps along the routes of the concepts in their order and, last, of the class
    with the highest logit; `residual` (1,) is what the shares of the worst of them miss (`AttributionPath.residual`).
    With `trees`, for these T = m + 1 targets: `tree_value` and `tree_neutral` (T,), as in `ParseTree`; `tree_top`
    (T, n_L), the shares of the capsules of the highest level; `tree_down_1` and so on (T, n', n), what part of a
    capsule's evidence came from each capsule of the level below; `tree_activity_0` and so on (n,), the lengths of the
    capsules of each level; and `tree_strict`, whether no capsule had more than one parent.
    """
    network = _frozen(model)
    if not has_tree(network):
        raise ValueError(
            f"{describe_routes(network)}, so no maps can be exported; leave out --maps, or give a model with a tree of "
            "cells, such as ParseCaps"
        )

    def explain(image: Tensor) -> dict[str, Tensor]:
        traced = trace(network, image)
        path = AttributionPath(traced, PANELS)
        best = cast(int, traced.output.logits[0].argmax())  # known when the graph runs
        targets = [*(Target("concepts", j) for j in range(len(model.concepts))), Target("classes", best)]
        found = {**_answer(model, traced.output), "maps": route_maps(path, targets)}
        found["residual"] = torch.cat([path.residual(target) for target in targets]).amax(0, keepdim=True)
        if trees:
            found |= _trees(traced, path, targets)
        return {name: tensor.detach() for name, tensor in found.items()}

    return ModelGraph(explain, any_batch=False)


def _frozen(model: Model) -> PretrainedModel:
    """A copy of the model whose weights need no gradient: those of the maps are of images and capsules.

    What it learned of alpha is a number, for which entmax takes fewer operations.
    """
    network = copy.deepcopy(model.network).eval().requires_grad_(False)
    for module in couplings_of(network):
        if isinstance(module.alpha, Tensor):
            alpha = float(module.alpha.clamp(1, 2))
            del module.alpha
            module.alpha = alpha
    return network


def _answer(model: Model, output: Output) -> dict[str, Tensor]:
    probabilities = (output.logits / model.calibration.temperature).softmax(-1)
    found = {"logits": output.logits, "probabilities": probabilities}
    if output.presence is not None:
        found["presence"] = output.presence.clamp(max=1)  # a length of 1, rounded up
    if output.concept_weights is not None:
        found["concept_weights"] = output.concept_weights
    return found


@torch.no_grad()
def _trees(traced: RouteTree, path: AttributionPath, targets: list[Target]) -> dict[str, Tensor]:
    leaves = [path.leaf_attribution(target) for target in targets]
    strict = is_strict(traced.cells)

    def of_target(*gradients: Tensor) -> tuple[Tensor, ...]:
        flow = evidence_flow(traced.cells, path.relevance_by(gradients))
        levels = tree_levels(traced.cells, traced.widths, flow, strict)
        return flow.nodes[levels[-1].layer], *(level.down for level in levels if level.down is not None)

    gradients = zip(*(path.gradients(target) for target in targets), strict=True)
    top, *downs = torch.vmap(of_target)(*(torch.stack(each) for each in gradients))
    return {
        "tree_value": torch.cat([each.after for each in leaves]),
        "tree_neutral": torch.cat([each.before for each in leaves]),
        "tree_strict": strict,
        "tree_top": top,
        **{f"tree_down_{i}": down for i, down in enumerate(downs, 1)},
        **{
            f"tree_activity_{i}": traced.layers[layer][0].norm(dim=-1)
            for i, layer in enumerate(tree_layers(traced.cells))
        },
    }


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
    widths = grid = None  # of the levels of a parse tree from the primary one up, and where the primary one lies
    if has_tree(network):
        preparation = model.preparation
        image = torch.zeros(1, preparation.channels, preparation.size, preparation.size).to(model.device)
        traced = trace(network.eval(), image)
        widths = [traced.widths[layer] for layer in tree_layers(traced.cells)]
        grid = asdict(PrimaryGrid.of(traced.initial, preparation.size))
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
        "widths": widths,
        "grid": grid,
    }


def check_onnx(path: Path, graph: ModelGraph, source: ExportSource) -> tuple[str, list[str]]:
    """Run the file on every validation case and on drawn images; one that gives other answers is refused.

    It gives a line about what the file holds, and lines about the check. Where maps make an image take long, every case
    is answered by the part of the file that answers, and the maps of some are compared.
    """
    import onnx
    from onnx.utils import Extractor

    model, drawn = onnx.load(path), source.drawn()
    outputs = [each.name for each in model.graph.output]
    answers = [name for name in outputs if name in ("logits", "probabilities", "presence", "concept_weights")]
    holds = f"{len(model.graph.node):,} nodes; gives {', '.join(outputs)}"
    if answers != outputs:
        model = Extractor(model).extract_model(["image"], answers)
    session = open_session(model.SerializeToString())
    want, worst = answer_graph(source.model).function, 0.0
    for images in chain(source.validation(), [drawn]):
        for batch in [images] if graph.any_batch else torch.split(images, 1):
            worst = max(worst, compare_answers(arrays(want(batch)), run(session, batch)))
    lines = [f"checked on {source.checked_on}: every class is the same, probabilities to {worst:.0e}"]
    if answers == outputs:
        return holds, lines
    session, worst = open_session(path), 0.0
    cases = (image for batch in source.validation() for image in torch.split(batch, 1))
    shown = [*islice(cases, EXPLAINED), *torch.split(drawn, 1)]
    for image in shown:
        explained, given = arrays(graph.function(image)), run(session, image)
        worst = max(worst, compare_maps(explained, given, partial(maps_by_rounding, graph.function, image)))
        if "tree_top" in explained:
            compare_trees(explained, given)
    return holds, [*lines, f"the maps of {len(shown)} of these are the same to {worst:.0e} of their maximum"]


def _write(source: ExportSource, path: Path) -> list[str]:
    import onnxruntime  # noqa: F401 (the check needs it, and to say so after the work would be late)

    graph = write_onnx(source.model, path, maps=bool(source.maps))
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
