"""The one registry of map methods, and the relevance of routes: where in an image something was seen, and by what.

Grad-CAM, integrated gradients and occlusion work for any model. The tests compare them with captum, which explains one
target at a time; here all targets share the forward pass, which makes an audit several times as fast.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.explain.attribution_path import (
    AttributionPath,
    Target,
    has_routes,
    has_tree,
    neutral_image,
    target_values,
    trace,
    trace_layer,
)
from parsecaps.explain.route_maps import layer_contributions, layer_maps, route_maps
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.capsules import PrimaryCaps
from parsecaps.nn.recorder import RecordedStage, hooked
from parsecaps.nn.routes import About

__all__ = ["MAP_METHODS", "ROUTES", "About", "MapMethod", "Target", "attribution_maps", "has_routes", "route_relevance"]

IG_STEPS = 16
_WINDOWS = 8  # strides of the occluding window along one side of the image


def integrated_gradients(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
    """Integrated gradients from a neutral picture (Sundararajan et al. 2017), by Gauss-Legendre quadrature."""
    points, weights = np.polynomial.legendre.leggauss(IG_STEPS)
    along, weight = (torch.from_numpy(each).to(image).view(-1, 1, 1, 1) / 2 for each in (points + 1, weights))
    maps = []
    for single in torch.split(image.detach(), 1):  # (1, channels, size, size)
        start = neutral_image(single)
        difference = single - start
        with torch.enable_grad():
            way = (start + along * difference).requires_grad_()  # (steps, channels, size, size)
            values = target_values(model(way), targets)
        gradients = [(gradient * weight).sum(0) for gradient in target_gradients(values, way)]
        maps.append((torch.stack(gradients) * difference).sum(1))
    return torch.stack(maps).clamp_min(0)


def grad_cam(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017) on the primary capsules before their squash, or on the last feature map."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        kept.append(output if output.requires_grad else output.requires_grad_())
        return output.clone()  # what comes next may change it in place

    with hooked([_feature_map(model, image)], keep), torch.enable_grad():
        values = target_values(model(image), targets)
    features = kept[0]
    maps = [(gradient.mean((2, 3), keepdim=True) * features).sum(1) for gradient in target_gradients(values, features)]
    small = torch.stack(maps, 1).detach()  # (B, T, h, w)
    return F.interpolate(small, image.shape[-2:], mode="bilinear", align_corners=False).clamp_min(0)


@torch.no_grad()
def occlusion(model: nn.Module, image: Tensor, targets: Sequence[Target]) -> Tensor:
    """What is lost when a window of a quarter of the image's side is covered (Zeiler and Fergus 2014).

    A pixel's value is the mean over the windows that cover it.
    """
    size = image.shape[-1]
    stride = -(-size // _WINDOWS)
    side = min(2 * stride, size)
    starts = torch.arange(0, size - side + stride, stride, device=image.device).unsqueeze(1)
    pixel = torch.arange(size, device=image.device)
    along = (pixel >= starts) & (pixel < starts + side)  # (positions, size)
    covered = (along[:, None, :, None] & along[None, :, None, :]).flatten(0, 1)  # (windows, size, size)
    corner = covered[:, ::stride, ::stride].to(image)  # all pixels of a square are covered by the same windows
    squares = (pixel // stride).unsqueeze(1), pixel // stride
    maps = []
    for single in torch.split(image, 1):
        hidden = torch.where(covered.unsqueeze(1), neutral_image(single), single)
        lost = target_values(model(single), targets) - target_values(model(hidden), targets)  # (windows, T)
        maps.append((torch.einsum("wt,wyx->tyx", lost, corner) / corner.sum(0))[:, *squares])
    return torch.stack(maps).clamp_min(0)


def target_gradients(values: Tensor, at: Tensor) -> list[Tensor]:
    """The gradient of each column of values (B, T), all by one graph."""
    with torch.enable_grad():
        sums = values.sum(0).unbind()
    return [torch.autograd.grad(each, at, retain_graph=True)[0] for each in sums]


def _feature_map(model: nn.Module, image: Tensor) -> nn.Module:
    """The primary capsules, a part's own `feature_map`, or the last convolution or batch normalisation that runs."""
    for module in model.modules():
        if isinstance(module, PrimaryCaps):
            return module.norm
        if isinstance(layer := getattr(module, "feature_map", None), nn.Module):
            return layer
    ran: list[nn.Module] = []

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        if output.dim() == 4 and len(output) == 1 and output.shape[2:].numel() > 1:
            ran.append(module)

    layers = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    with hooked(layers, note), torch.no_grad():
        model(image[:1])
    if not ran:
        raise ValueError(f"{type(model).__name__} has no feature map for Grad-CAM; choose another map")
    return ran[-1]


# a model, images (B, channels, size, size) and targets -> (B, targets, size, size), not negative
MapMethod = Callable[[PretrainedModel, Tensor, Sequence[Target]], Tensor]

ROUTES = "routes"
_AT_ONCE = 4  # images; a path has several points for each


def _along_routes(model: PretrainedModel, image: Tensor, targets: Sequence[Target]) -> Tensor:
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


def attribution_maps(model: PretrainedModel, image: Tensor, targets: Sequence[Target], method: str = ROUTES) -> Tensor:
    """Where each target was seen, by one of `MAP_METHODS`.

    Shapes:
        - image: (B, channels, size, size) in [0, 1], as the model takes it
        - output: (B, targets, size, size), not negative
    """
    if method not in MAP_METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(MAP_METHODS)}")
    return MAP_METHODS[method](model, image, targets)


@torch.no_grad()
def route_relevance(model: PretrainedModel, image: Tensor, targets: Sequence[Target]) -> list[list[Tensor]]:
    """What each route brought to each target, as maps and trees show it: for each target, for each cell.

    Where a cell has several ways that choose, their heads come one after the other. A model without cells has the
    routes to its classes, as if they were of one cell.

    Shapes:
        - image: (B, channels, size, size)
        - output: (B, heads, parents, children) each
    """
    if has_routes(model) and not has_tree(model):
        return [[brought] for brought in layer_contributions(trace_layer(model, image), targets)]
    path = AttributionPath(trace(model, image))
    path.find_gradients(targets)

    def choices(cell: RecordedStage, by_way: Sequence[Tensor]) -> Tensor:
        ways = zip(cell.ways, by_way, strict=True)
        return torch.cat([each.messages.dense(kept) for each, kept in ways if each.way.chooses], 1)

    return [
        [choices(cell, by_way) for cell, by_way in zip(path.cells, path.route_relevance(target), strict=True)]
        for target in targets
    ]
