"""Relevance along a path: from a picture with nothing in it to this one, every route credited with what it brought.

The primary capsules go in small steps from those of a neutral image to those of the image, and every cell chooses
anew at each step. What a child sends to a parent is `c v`, coupling times value; as it changes, the presence changes
by the gradient times that change. Summed over the steps these add up, in each cell, to the whole difference between
the two presences, with what each child was chosen for and what it then said both on its account. With the couplings as
they were (`explain.flow`) the choices count for nothing, and concepts that are told apart by them are not found.
"""

from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import Tensor

from parsecaps.explain.flow import pull_cell, relevance
from parsecaps.explain.targets import About, measure
from parsecaps.explain.trace import CellRoutes, Routes

STEPS = 8


@dataclass(frozen=True)
class PathRelevance:
    """What each primary capsule brought, for B images and K targets; sums to `after - before` but for the steps' size.

    Shapes:
        - primary: (B, K, n_1)
        - direction: (B, K, n_1, d_1), the mean gradient along the path
        - before, after: (B, K), the presences or logits of the neutral image and of the image
    """

    primary: Tensor
    direction: Tensor
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class EdgeRelevance:
    """What each child brought to each parent of one cell for one target, by the way it took.

    Shapes:
        - sparse: (B, heads, n', n)
        - axial: (B, n', n)
        - own: (B, n'), what the capsule at a parent's place brought by staying there
    """

    sparse: Tensor
    axial: Tensor | None
    own: Tensor | None

    @property
    def total(self) -> Tensor:
        """All ways together (B, n', n)."""
        whole = self.sparse.sum(1)
        if self.axial is not None:
            whole = whole + self.axial
        return whole if self.own is None else whole + torch.diag_embed(self.own)


def neutral(image: Tensor) -> Tensor:
    """A picture (B, channels, H, W) with nothing in it: everywhere the median colour of `image`."""
    return image.flatten(2).median(2).values[:, :, None, None].expand_as(image)


def path_relevance(routes: Routes, about: About, steps: int = STEPS) -> PathRelevance:
    """What each primary capsule brought to each concept or class."""
    leaves = _path(routes, steps)
    with torch.enable_grad():
        values = measure(routes, routes.norm(routes.tower(leaves)), about)
    gradients = [_gradients(values, index, [leaves])[0] for index in range(values.shape[1])]
    gradient = _by_step(torch.stack(gradients, 1), steps)  # (steps + 1, B, K, n, d)
    mean = (gradient[1:] + gradient[:-1]).mean(0) / 2
    start, end = _ends(leaves, steps)
    before, after = _ends(values, steps)
    return PathRelevance(relevance(mean, end - start), mean, before, after)


def edge_relevance(
    routes: Routes, about: About, index: int, steps: int = STEPS
) -> tuple[tuple[EdgeRelevance, ...], Tensor, Tensor]:
    """What each route of each cell brought to one concept or class, and its value (B,) before and after the path."""
    leaves = _path(routes, steps)
    with torch.enable_grad():
        climbed = routes.climb(leaves)
        values = measure(routes, routes.norm(climbed[-1].parents), about)
    if not 0 <= index < values.shape[1]:
        raise ValueError(f"{index} is none of the model's {about}; choose from 0 to {values.shape[1] - 1}")
    gradients = _gradients(values, index, [cell.parents for cell in climbed])
    edges = tuple(_edges(cell, gradient, steps) for cell, gradient in zip(climbed, gradients, strict=True))
    return edges, *_ends(values[:, index], steps)


@torch.no_grad()
def _path(routes: Routes, steps: int) -> Tensor:
    """The primary capsules of all points of the path, point by point in one batch: ((steps + 1) * B, n_1, d_1)."""
    start = routes.leaves(neutral(routes.image))
    parts = torch.linspace(0, 1, steps + 1, dtype=start.dtype, device=start.device).view(-1, 1, 1, 1)
    return (start + parts * (routes.primary - start)).flatten(0, 1).requires_grad_()


def _gradients(values: Tensor, index: int, at: list[Tensor]) -> tuple[Tensor, ...]:
    one = torch.zeros_like(values)
    one[:, index] = 1
    return torch.autograd.grad(values, at, one, retain_graph=True)


def _by_step(x: Tensor, steps: int) -> Tensor:
    return rearrange(x.detach(), "(s b) ... -> s b ...", s=steps + 1)


def _ends(x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    split = _by_step(x, steps)
    return split[0], split[-1]


@torch.no_grad()
def _edges(cell: CellRoutes, gradient: Tensor, steps: int) -> EdgeRelevance:
    ways = pull_cell(cell, gradient.unsqueeze(1), "tangent")
    routed = ways.routed  # (B, 1, n', d'): for each head the same
    coupling, values = _by_step(cell.coupling, steps), _by_step(cell.values, steps)
    sparse = torch.zeros_like(coupling[0])
    for s, g in enumerate(_between(routed, steps)):
        came, went = g @ values[s + 1].mT * coupling[s + 1], g @ values[s].mT * coupling[s]
        sparse += came - went
    axial = own = None
    if cell.axial is not None and ways.mixed is not None:
        change = _by_step(cell.axial.values, steps).diff(dim=0)
        mixed = _between(ways.mixed.squeeze(1), steps)
        axial = einsum(mixed, change, "s b p d, s b c d -> b p c") * cell.axial.mean
    if ways.kept is not None:
        change = _by_step(cell.children, steps).diff(dim=0)
        own = einsum(_between(ways.kept.squeeze(1), steps), change, "s b p d, s b p d -> b p")
    return EdgeRelevance(sparse, axial, own)


def _between(x: Tensor, steps: int) -> Tensor:
    """The mean of each two neighbouring points of the path: (steps * B...) -> (steps, B, ...)."""
    split = _by_step(x, steps)
    return (split[1:] + split[:-1]) / 2
