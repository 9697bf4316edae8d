"""The one registry of map methods, and the relevance of routes: where in an image something was seen, and by what."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from parsecaps.explain.attribution_path import AttributionPath
from parsecaps.explain.gradient_maps import grad_cam, integrated_gradients, occlusion
from parsecaps.explain.route_maps import layer_contributions, layer_maps, route_maps
from parsecaps.explain.trace import Target, has_routes, has_tree, trace, trace_layer
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.recorder import RecordedStage
from parsecaps.nn.routes import About

__all__ = ["MAP_METHODS", "ROUTES", "About", "MapMethod", "Target", "attribution_maps", "has_routes", "route_relevance"]

# a model, images (B, channels, size, size) and targets -> (B, targets, size, size), not negative
MapMethod = Callable[[PretrainedModel, Tensor, Sequence[Target]], Tensor]

ROUTES = "routes"
_AT_ONCE = 4  # images; a path has several points for each


def _along_routes(model: PretrainedModel, image: Tensor, targets: Sequence[Target]) -> Tensor:
    """Maps along the routes, for models that have them (`explain.route_maps`)."""
    if not has_routes(model):
        raise ValueError(f"{type(model).__name__} has no routes to follow; choose a gradient map")
    parts = torch.split(image, _AT_ONCE)
    if has_tree(model):
        return torch.cat([route_maps(AttributionPath(trace(model, part)), targets) for part in parts])
    return torch.cat([layer_maps(trace_layer(model, part), targets, image.shape[-1]) for part in parts])


MAP_METHODS: dict[str, MapMethod] = {
    ROUTES: _along_routes,
    "grad-cam": grad_cam,
    "integrated-gradients": integrated_gradients,
    "occlusion": occlusion,
}


def check_method(method: str) -> None:
    """Refuse what is no method."""
    if method not in MAP_METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(MAP_METHODS)}")


def attribution_maps(model: PretrainedModel, image: Tensor, targets: Sequence[Target], method: str = ROUTES) -> Tensor:
    """Where each target was seen, by one of `MAP_METHODS`.

    Shapes:
        - image: (B, channels, size, size) in [0, 1], as the model takes it
        - output: (B, targets, size, size), not negative
    """
    check_method(method)
    return MAP_METHODS[method](model, image, targets)


@torch.no_grad()
def route_relevance(model: PretrainedModel, image: Tensor, targets: Sequence[Target]) -> list[list[Tensor]]:
    """What each route brought to each target, as maps and trees show it: for each target, for each cell.

    The routes are those of the ways that choose; where a cell has several such ways, their heads come one after the
    other. A model without cells has those to its classes, as if they were of one cell.

    Shapes:
        - image: (B, channels, size, size)
        - output: (B, heads, parents, children) each
    """
    if has_routes(model) and not has_tree(model):
        return [[brought] for brought in layer_contributions(trace_layer(model, image), targets)]
    path = AttributionPath(trace(model, image))
    path.find_gradients(targets)
    return [
        [_choices(cell, by_way) for cell, by_way in zip(path.cells, path.route_relevance(target), strict=True)]
        for target in targets
    ]


def _choices(cell: RecordedStage, by_way: Sequence[Tensor]) -> Tensor:
    """(B, heads, n', n): what was brought along the ways that choose."""
    ways = zip(cell.ways, by_way, strict=True)
    return torch.cat([each.messages.dense(kept) for each, kept in ways if each.way.chooses], 1)
