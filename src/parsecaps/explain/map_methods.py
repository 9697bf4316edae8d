"""The ways to make maps that a user can choose from: along the routes, or by gradients."""

import numpy as np
from torch import Tensor, nn

from parsecaps.explain.attribution import MAP_METHODS, Target, attribution_maps
from parsecaps.explain.targets import About

ROUTES = "routes"
METHODS = MAP_METHODS


def check_method(method: str) -> None:
    """Refuse what is no method."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; choose one of {', '.join(METHODS)}")


def make_maps(model: nn.Module, batch: Tensor, about: About, method: str) -> np.ndarray:
    """The maps (K, size, size) of one image (1, channels, size, size), not negative."""
    count = getattr(model, "num_concepts" if about == "concepts" else "num_classes")
    found = attribution_maps(model, batch, [Target(about, index) for index in range(count)], method)
    return np.asarray(found[0].detach().cpu().float().numpy())
