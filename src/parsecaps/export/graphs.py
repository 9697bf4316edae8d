"""What an exported model computes, as functions of one tensor: the answer, the maps behind it, and its parse trees.

They call the network and the explanations as they are; nothing here is mathematics of its own.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from parsecaps.explain.attribution_path import AttributionPath, Target, describe_routes, has_tree, trace
from parsecaps.explain.evidence import evidence_flow, is_strict, tree_layers, tree_levels
from parsecaps.explain.route_maps import route_maps
from parsecaps.model import Model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.recorder import couplings_of
from parsecaps.nn.routes import RouteTree
from parsecaps.types import Output

PANELS = 24  # enough for all images measured (docs/explain.md): a graph cannot refine the path


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
