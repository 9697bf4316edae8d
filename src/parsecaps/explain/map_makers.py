"""The methods that an audit compares: maps along the routes, for models that route, and gradient maps for any."""

from collections.abc import Sequence

from torch import Tensor, nn

from parsecaps.audit.maps import MapMaker, RoutesOf
from parsecaps.explain.gradient_maps import GRADIENT_MAPS
from parsecaps.explain.path import edge_relevance
from parsecaps.explain.route_maps import class_maps, concept_maps
from parsecaps.explain.targets import About
from parsecaps.explain.trace import trace
from parsecaps.nn.couplings import Coupling

ROUTES = "routes"
COMPARED = ("grad-cam", "integrated gradients", "occlusion")


def map_makers(model: nn.Module) -> dict[str, MapMaker]:
    """By name, the routes first where the model has any."""
    makers: dict[str, MapMaker] = {ROUTES: route_maps} if _has_routes(model) else {}
    return makers | {name: GRADIENT_MAPS[name] for name in COMPARED}


def routes_of(model: nn.Module) -> RoutesOf | None:
    """What gives the relevance of each route, where the model has any."""
    return route_relevance if _has_routes(model) else None


def route_maps(model: nn.Module, image: Tensor, *, about: About) -> Tensor:
    """Maps along the routes: (B, channels, size, size) -> (B, K, size, size)."""
    return concept_maps(model, image) if about == "concepts" else class_maps(model, image)


def route_relevance(model: nn.Module, image: Tensor, about: About, target: int) -> Sequence[Tensor]:
    """What each route of each cell brought to one target, as maps and trees show it: (B, heads, parents, children)."""
    cells, _, _ = edge_relevance(trace(model, image), about, target)
    return [cell.sparse for cell in cells]


def _has_routes(model: nn.Module) -> bool:
    return any(isinstance(module, Coupling) for module in model.modules())
