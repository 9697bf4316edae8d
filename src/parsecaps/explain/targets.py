"""What is explained: the presence of each concept, or the logit of each class, as a number that top capsules add up to.

Both heads are linear in the top capsules before their squash (Sec. 3.1). A capsule's length is its inner product with
its own direction, so what each top capsule adds to it is exact.
"""

from typing import Literal

import torch
from einops import einsum
from torch import Tensor

from parsecaps.explain.trace import Routes
from parsecaps.functional import squash
from parsecaps.nn.heads import Bottleneck, CapsuleReadout

About = Literal["concepts", "classes"]


def measure(routes: Routes, top: Tensor, about: About) -> Tensor:
    """The presences (B, m) or the logits (B, classes) that the heads give to top capsules (B, n_L, d_L)."""
    if about == "classes" and not isinstance(routes.classes, Bottleneck):
        logits: Tensor = routes.classes(top)[0]
        return logits
    if routes.concepts is None:
        raise ValueError("the model has no concepts to explain; ask for its classes")
    presence: Tensor = routes.concepts(top)[1]
    if about == "classes":
        logits = routes.classes(presence)[0]
        return logits
    return presence


def secant(routes: Routes, about: About) -> Tensor:
    """The direction (B, K, n_L, d_L) along which top capsules, and a constant, add up to what `measure` gives.

    Each squash counts as the factor that it was.
    """
    if about == "classes" and not isinstance(routes.classes, Bottleneck):
        return routes.classes.scale * _readout_secant(routes.classes.readout, routes.top)
    if routes.concepts is None:
        raise ValueError("the model has no concepts to explain; ask for its classes")
    direction = _readout_secant(routes.concepts.readout, routes.top)
    if about == "classes":
        assert isinstance(routes.classes, Bottleneck)
        return einsum(routes.classes.weight, direction, "k m, b m n d -> b k n d")
    return direction


def tangent(routes: Routes, about: About) -> Tensor:
    """The gradient of what `measure` gives, at the top capsules: (B, K, n_L, d_L)."""
    with torch.enable_grad():
        top = routes.top.detach().requires_grad_()
        values = measure(routes, top, about)
        gradients = [torch.autograd.grad(value.sum(), top, retain_graph=True)[0] for value in values.unbind(1)]
    return torch.stack(gradients, 1)


def _readout_secant(readout: CapsuleReadout, top: Tensor) -> Tensor:
    s = readout.shares(top).sum(2) + readout.bias  # (B, K, d_out)
    length = s.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    towards: Tensor = squash(s).norm(dim=-1, keepdim=True) / length * s / length
    direction: Tensor = einsum(towards @ readout.over_dim.T, readout.over_capsules, "b k d, k n -> b k n d")
    return direction
