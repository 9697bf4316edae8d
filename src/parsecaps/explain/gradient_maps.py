"""Maps that need no routes, for any model: what route maps are compared with. By captum.

Each gives what `explain.route_maps` gives: (B, K, size, size), not negative unless `signed`, for the concepts or the
classes. Where a method asks for a picture with nothing in it, it gets the same one as the routes do.
"""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.explain.path import neutral
from parsecaps.explain.targets import About
from parsecaps.nn.primary import PrimaryCaps
from parsecaps.types import Output

IG_STEPS = 16
_OCCLUDED = 8  # windows along one side of the image


class GradientMap(Protocol):
    """A model and images (B, channels, size, size) to maps (B, K, size, size)."""

    def __call__(self, model: nn.Module, image: Tensor, *, about: About = "concepts", signed: bool = False) -> Tensor:
        """Explain every concept or every class."""
        ...


def integrated_gradients(model: nn.Module, image: Tensor, *, about: About = "concepts", signed: bool = False) -> Tensor:
    """What each pixel brought on the way from a neutral picture to this one (Sundararajan et al. 2017)."""
    from captum.attr import IntegratedGradients

    method = IntegratedGradients(_values(model, about))

    def one(given: Tensor, index: int) -> Tensor:
        found: Tensor = method.attribute(
            given, neutral(image), target=index, n_steps=IG_STEPS, internal_batch_size=max(len(image), 32)
        )
        return found.sum(1)

    return _each(model, image, about, signed, one)


def saliency(model: nn.Module, image: Tensor, *, about: About = "concepts", signed: bool = False) -> Tensor:
    """The gradient at each pixel (Simonyan et al. 2014): its length over the channels, or signed their sum."""
    from captum.attr import Saliency

    method = Saliency(_values(model, about))

    def one(given: Tensor, index: int) -> Tensor:
        gradient: Tensor = method.attribute(given, target=index, abs=False)
        return gradient.sum(1) if signed else gradient.norm(dim=1)

    return _each(model, image, about, signed, one)


def grad_cam(model: nn.Module, image: Tensor, *, about: About = "concepts", signed: bool = False) -> Tensor:
    """Grad-CAM (Selvaraju et al. 2017) on the primary capsules before their squash, or on the last feature map."""
    from captum.attr import LayerGradCam

    method = LayerGradCam(_values(model, about), _feature_map(model))

    def one(given: Tensor, index: int) -> Tensor:
        found: Tensor = method.attribute(given, target=index)
        return F.interpolate(found, image.shape[-2:], mode="bilinear", align_corners=False)[:, 0]

    return _each(model, image, about, signed, one)


@torch.no_grad()
def occlusion(model: nn.Module, image: Tensor, *, about: About = "concepts", signed: bool = False) -> Tensor:
    """What is lost when a window of a quarter of the image's side is covered (Zeiler and Fergus 2014)."""
    from captum.attr import Occlusion

    values = _values(model, about)
    method = Occlusion(values)
    size = image.shape[-1]
    stride = -(-size // _OCCLUDED)
    window = (image.shape[1], min(2 * stride, size), min(2 * stride, size))
    maps = []
    for single in torch.split(image, 1):  # alone, so that one pass serves all concepts
        found = method.attribute(
            single,
            window,
            (window[0], stride, stride),
            baselines=neutral(single),
            perturbations_per_eval=_OCCLUDED**2,
        )
        maps.append(found[:, 0])  # the same for every channel
    result = torch.stack(maps)
    return result if signed else result.clamp_min(0)


GRADIENT_MAPS: dict[str, GradientMap] = {
    "integrated gradients": integrated_gradients,
    "grad-cam": grad_cam,
    "occlusion": occlusion,
    "saliency": saliency,
}


def _values(model: nn.Module, about: About) -> Callable[[Tensor], Tensor]:
    """The model as a function from images to presences or logits (B, K)."""

    def values(image: Tensor) -> Tensor:
        output: Output = model(image)
        if about == "classes":
            return output.logits
        if output.presence is None:
            raise ValueError("the model has no concepts to explain; ask for its classes")
        return output.presence

    return values


def _each(model: nn.Module, image: Tensor, about: About, signed: bool, one: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The maps of all concepts or classes, one after the other."""
    with torch.no_grad():
        num_targets = _values(model, about)(image[:1]).shape[1]
    given = image.detach().clone().requires_grad_()
    maps = torch.stack([one(given, index).detach() for index in range(num_targets)], 1)
    return maps if signed else maps.clamp_min(0)


def _feature_map(model: nn.Module) -> nn.Module:
    """The module that gives the primary capsules as a feature map, or the last one of a model without them."""
    for module in model.modules():
        if isinstance(module, PrimaryCaps):
            return module.norm
    found = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    if not found:
        raise ValueError(f"{type(model).__name__} has no feature map for Grad-CAM; choose another map")
    return found[-1]
