"""Maps of where a concept, or the reason for a class, was seen: the network's own routes, followed down to pixels."""

from typing import Literal, get_args

import torch
from einops import einsum
from torch import Tensor, nn

from parsecaps.explain.flow import flow, relevance
from parsecaps.explain.path import neutral, path_relevance
from parsecaps.explain.pixels import focus, magnify, pixel_contributions, smooth
from parsecaps.explain.places import Places
from parsecaps.explain.targets import About, secant
from parsecaps.explain.trace import CellRoutes, Routes, trace

Weight = Literal["path", "contribution", "gradient", "activity"]
_AT_ONCE = 4  # images; a path has several points for each


def concept_maps(model: nn.Module, image: Tensor, *, weight: Weight = "path", signed: bool = False) -> Tensor:
    """Where each concept was seen.

    `weight` says what a route counts for. "path": what it brought on the way from a neutral picture to this one
    (`explain.path`), the default since it finds concepts best. "contribution": what it added with the couplings as
    they were, exactly (`explain.flow`). "gradient": the gradient in place of the exact factor. "activity": couplings
    and lengths of capsules alone, whatever they mean to the concept; it has no sign and no detail within a place.
    `signed` keeps what spoke against the concept, as negative values.

    Shapes:
        - image: (B, channels, size, size) in [0, 1], as the model takes it
        - output: (B, m, size, size), not negative unless `signed`
    """
    return _maps(model, image, "concepts", weight, signed)


def class_maps(model: nn.Module, image: Tensor, *, weight: Weight = "path", signed: bool = False) -> Tensor:
    """Where the reasons for each class were seen: (B, classes, size, size), otherwise as `concept_maps`."""
    return _maps(model, image, "classes", weight, signed)


@torch.no_grad()
def primary_relevance(routes: Routes, about: About, weight: Weight) -> tuple[Tensor, Tensor | None]:
    """The relevance of each primary capsule (B, K, n_1), and the direction it was measured along (B, K, n_1, d_1).

    "contribution" and "gradient" measure how far a capsule is from that of a neutral picture; "activity" has no
    direction.
    """
    if weight == "path":
        path = path_relevance(routes, about)
        return path.primary, path.direction
    if weight == "activity":
        return _activity(routes, about), None
    if weight not in get_args(Weight):
        raise ValueError(f"weight is {weight!r}; choose one of {', '.join(get_args(Weight))}")
    direction = flow(routes, about, "secant" if weight == "contribution" else "tangent")[0].children
    return relevance(direction, routes.primary - routes.leaves(neutral(routes.image))), direction


@torch.no_grad()
def _maps(model: nn.Module, image: Tensor, about: About, weight: Weight, signed: bool) -> Tensor:
    maps = []
    for part in torch.split(image, _AT_ONCE):
        routes = trace(model, part)
        places = Places.of(routes.initial, image.shape[-1])
        found, direction = primary_relevance(routes, about, weight)
        if direction is None:
            maps.append(magnify(found, places))
            continue
        pixels = pixel_contributions(routes, direction)
        evidence = focus(found.clamp_min(0), pixels.clamp_min(0), places)
        if signed:
            evidence = evidence - focus(-found.clamp_max(0), -pixels.clamp_max(0), places)
        maps.append(smooth(evidence, places.step))
    return torch.cat(maps)


def _activity(routes: Routes, about: About) -> Tensor:
    """Each parent's share handed on to its children by coupling and length: (B, K, n_1), not negative."""
    share = relevance(secant(routes, about), routes.top).clamp_min(0)
    for cell in reversed(routes.cells):
        given = _lengths(cell)
        given = given / given.sum(-1, keepdim=True).clamp_min(torch.finfo(given.dtype).tiny)
        share = share @ given
    return share


def _lengths(cell: CellRoutes) -> Tensor:
    """How long what each child gave to each parent was, over all ways: (B, n', n)."""
    lengths: Tensor = einsum(cell.coupling, cell.values.norm(dim=-1), "b h p c, b h c -> b p c")
    if cell.axial is not None:
        lengths = lengths + cell.axial.mean * cell.axial.values.norm(dim=-1).unsqueeze(1)
    if cell.residual:
        lengths = lengths + torch.diag_embed(cell.children.norm(dim=-1))
    return lengths
