"""Relevance that flows from the heads down the routes with the couplings as they were, and adds up.

A cell is then linear in its children but for what it does within each capsule: squash, normalisation, MLP. There two
slopes are offered. The secant takes each of these functions as the factor that it was (`squash(s) = f s`, with `f`
kept), so the network is affine in its primary capsules, and what each of them adds to a presence is exact. The tangent
takes the derivative.

A direction is what relevance is measured along: the relevance of a capsule is its inner product with its direction.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from einops import einsum
from torch import Tensor, nn

from parsecaps.explain.targets import About, secant, tangent
from parsecaps.explain.trace import CellRoutes, Routes
from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm
from parsecaps.nn.cell import CapsuleCell

Slope = Literal["secant", "tangent"]


@dataclass(frozen=True)
class CellFlow:
    """Directions at one cell, for K targets: at its children, and at each way into its parents.

    Shapes:
        - children: (B, K, n, d)
        - routed: (B, K, n', d'), at C V
        - mixed: (B, K, n', d'), at the axial branch before its squash
        - kept: (B, K, n', d'), at the capsule that stays at its place
    """

    children: Tensor
    routed: Tensor
    mixed: Tensor | None
    kept: Tensor | None


@torch.no_grad()
def flow(routes: Routes, about: About, slope: Slope) -> tuple[CellFlow, ...]:
    """The directions at every cell, from the first to the last."""
    at_top = secant(routes, about) if slope == "secant" else tangent(routes, about)
    pull = torch.func.vjp(lambda u: bend(routes.norm, u, slope), routes.cells[-1].parents)[1]
    direction: Tensor = torch.vmap(pull, in_dims=1, out_dims=1)(at_top)[0]
    flows = []
    for cell in reversed(routes.cells):
        flows.append(pull_cell(cell, direction, slope))
        direction = flows[-1].children
    return tuple(reversed(flows))


def pull_cell(routes: CellRoutes, direction: Tensor, slope: Slope) -> CellFlow:
    """From a direction at the parents (B, K, n', d') to the directions at all that made them."""
    ways = [routes.routed]
    if routes.axial is not None:
        ways.append(routes.axial.routed)
    if routes.residual:
        ways.append(routes.children)
    pull = torch.func.vjp(lambda *sums: _settle(routes.cell, sums, slope), *ways)[1]
    pulled = list(torch.vmap(pull, in_dims=1, out_dims=1)(direction))
    routed = pulled.pop(0)
    asked = einsum(routed, routes.cell.routing.sparse.value_maps, "b k p d, h i d -> b k h p i")
    children = einsum(routes.coupling, asked, "b h p c, b k h p i -> b k c i")
    mixed = kept = None
    if routes.axial is not None and routes.cell.routing.axial is not None:
        mixed = pulled.pop(0)
        unmixed = mixed @ routes.axial.coupling.unsqueeze(1) @ routes.cell.routing.axial.value.weight
        children = children + routes.axial.mean.mT @ unmixed
    if routes.residual:
        kept = pulled.pop(0)
        children = children + kept
    return CellFlow(children, routed, mixed, kept)


def relevance(direction: Tensor, capsules: Tensor) -> Tensor:
    """(B, K, n, d) and (B, n, d) -> (B, K, n): the relevance of each capsule to each target."""
    return einsum(direction, capsules, "b k n d, b n d -> b k n")


def bend(layer: nn.Module, x: Tensor, slope: Slope) -> Tensor:
    """`layer(x)` with the slope that is asked for; both agree where the layer is affine."""
    y: Tensor
    if slope == "secant" and isinstance(layer, nn.LayerNorm):
        spread = torch.sqrt(x.detach().var(-1, unbiased=False, keepdim=True) + layer.eps)
        y = (x - x.mean(-1, keepdim=True)) / spread * layer.weight + layer.bias
    elif slope == "secant" and isinstance(layer, nn.GELU):
        y = x * torch.special.ndtr(x.detach())
    else:
        y = layer(x)
    return y


def _settle(cell: CapsuleCell, sums: tuple[Tensor, ...], slope: Slope) -> Tensor:
    """The parents from what came to them: squash the branches, add, normalise, MLP."""
    branches = sums[:-1] if cell.residual else sums
    squashed = [_bend_squash(s, cell.routing.sparse.squash_form, slope) for s in branches]
    parents = torch.stack([*squashed, *sums[len(branches) :]]).sum(0)
    z = y = bend(cell.norm, parents, slope)
    for layer in cell.mlp:
        y = bend(layer, y, slope)
    return z + y


def _bend_squash(s: Tensor, form: SquashForm, slope: Slope) -> Tensor:
    if slope == "tangent":
        return squash(s, form)
    was = s.detach()
    length = was.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    factor: Tensor = squash(was, form).norm(dim=-1, keepdim=True) / length
    return s * factor
