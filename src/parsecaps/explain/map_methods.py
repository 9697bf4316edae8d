"""The ways to make maps that a user can choose from: along the routes, or by gradients."""

import numpy as np
from torch import Tensor, nn

from parsecaps.explain.gradient_maps import GRADIENT_MAPS
from parsecaps.explain.route_maps import class_maps, concept_maps
from parsecaps.explain.targets import About

ROUTES = "routes"
METHODS: dict[str, str] = {
    ROUTES: "",
    "grad-cam": "grad-cam",
    "integrated-gradients": "integrated gradients",
    "occlusion": "occlusion",
}


def check_method(method: str) -> None:
    """Refuse what is no method."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}")


def make_maps(model: nn.Module, batch: Tensor, about: About, method: str) -> np.ndarray:
    """The maps (K, size, size) of one image (1, channels, size, size), not negative."""
    if method == ROUTES:
        found = (class_maps if about == "classes" else concept_maps)(model, batch)
    else:
        found = GRADIENT_MAPS[METHODS[method]](model, batch, about=about)
    return np.asarray(found[0].detach().cpu().float().numpy())
