"""The one registry of map methods: where in an image a concept, or the reason for a class, was seen."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from parsecaps.explain.gradient_maps import grad_cam, integrated_gradients, occlusion
from parsecaps.explain.path import edge_relevance
from parsecaps.explain.route_maps import class_maps, concept_maps
from parsecaps.explain.trace import trace
from parsecaps.nn.couplings import Coupling


class Target(NamedTuple):
    """What is explained: the presence of a concept, or the logit of a class."""

    about: Literal["concepts", "classes"]
    index: int  # type: ignore[assignment]  # the position of a tuple's item is of no use here


MapMethod = Callable[[nn.Module, Tensor, Sequence[Target]], Tensor]


def route_maps(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
    """Maps along the routes."""
    made = {
        about: (concept_maps if about == "concepts" else class_maps)(model, image)
        for about in {target.about for target in targets}
    }
    return torch.stack([made[target.about][:, target.index] for target in targets], 1)


MAP_METHODS: dict[str, MapMethod] = {
    "routes": route_maps,
    "grad-cam": grad_cam,
    "integrated-gradients": integrated_gradients,
    "occlusion": occlusion,
}


def attribution_maps(model: nn.Module, image: Tensor, targets: Sequence[Target], method: str) -> Tensor:
    """(B, channels, size, size) -> (B, targets, size, size), not negative."""
    if method not in MAP_METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(MAP_METHODS)}")
    return MAP_METHODS[method](model, image, targets)


def route_relevance(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> list[list[Tensor]]:
    """What each route brought: for each target a list over the cells of (B, heads, parents, children)."""
    routes = trace(model, image)
    return [[cell.sparse for cell in edge_relevance(routes, *target)[0]] for target in targets]


def has_routes(model: nn.Module) -> bool:
    """Whether the model routes."""
    return any(isinstance(module, Coupling) for module in model.modules())
