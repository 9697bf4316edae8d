"""Dynamic routing by agreement (Sabour, Frosst and Hinton 2017), on the grids and windows of ParseCaps."""

import math
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.locality import Neighbourhood
from parsecaps.nn.routing import Messages, Routing, RoutingConfig, Way


class DynamicRouting(Routing):
    """`u_hat_{j|i} = W_{j-i} u_i`, `c = softmax(b)` over the parents j of a child i, `v = squash(sum of c u_hat)`.

    The transformation W depends on where a child lies in its parent's window, as in a convolution. The logits b start
    at 0, and after each of the `iterations` but the last grow by the agreement `u_hat . v`. A head is a group of the
    parents' instantiation parameters that is routed and squashed by itself: a capsule type of the original. Gradients
    flow through all iterations, as in the authors' own code.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
        - couplings: (B, heads, n', n)
    """

    uses = frozenset({"iterations"})

    outside: Tensor

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__(width=width, in_dim=in_dim, out_dim=out_dim, stride=stride, config=config)
        if out_dim % config.heads:
            raise ValueError(f"{config.heads} heads do not divide a capsule dimension of {out_dim}; choose a divisor")
        self.heads, self.iterations, self.squash_form = config.heads, config.iterations, config.squash_form
        self.neighbourhood = Neighbourhood(width=width, stride=stride, radius=config.radius, windowed=True)
        places = self.neighbourhood.side**2
        # the start of the original's convolutions: predictions about as long as the mean child
        self.weight = nn.Parameter(torch.randn(places, in_dim, out_dim) / math.sqrt(in_dim))
        allowed = self.neighbourhood.dense(self.neighbourhood.allowed.float().unsqueeze(0))[0, 0] > 0  # (n', n)
        outside = torch.zeros(allowed.shape).masked_fill(~allowed, -math.inf)
        self.register_buffer("outside", outside, persistent=False)
        self.coupling = Coupling(branch="agreement", dim=-2, alpha=1.0, allowed=allowed)
        self.way = Way("agreement", chooses=True)

    def forward(self, u: Tensor) -> Tensor:
        children = self.neighbourhood.gather(u)  # (B, n', window, in_dim)
        u_hat = einsum(children, self.weight, "b n w i, w i d -> b n w d")
        u_hat = rearrange(u_hat, "b n w (h d) -> b n h w d", h=self.heads)
        b = self.outside.expand(u.shape[0], self.heads, -1, -1)
        for _ in range(self.iterations - 1):
            v = self._squash(self._sum(self.neighbourhood.kept(b.softmax(-2)), u_hat))
            agreement = einsum(u_hat, v, "b n h w d, b n h d -> b n h w")
            b = b + self.neighbourhood.dense(agreement)
        c = self.neighbourhood.kept(self.coupling(b))  # (B, n', heads, window)
        s = self._sum(c, u_hat)
        s = self.way(rearrange(s, "b n h d -> b n (h d)"), CoupledPredictions(self, u_hat, c))
        return rearrange(self._squash(rearrange(s, "b n (h d) -> b n h d", h=self.heads)), "b n h d -> b n (h d)")

    def _sum(self, c: Tensor, u_hat: Tensor) -> Tensor:
        return (c.unsqueeze(-2) @ u_hat).squeeze(-2)

    def _squash(self, s: Tensor) -> Tensor:
        return squash(s, self.squash_form)


@dataclass(frozen=True, eq=False)
class CoupledPredictions(Messages):
    """The messages `c u_hat` of c (B, n', heads, window) and u_hat (B, n', heads, window, d); kept as c is."""

    routing: DynamicRouting
    u_hat: Tensor
    c: Tensor

    @property
    def coupling(self) -> Tensor:
        return self.c

    def along(self, direction: Tensor) -> Tensor:
        wanted = rearrange(direction, "b n (h d) -> b n h d 1", h=self.routing.heads)
        return self.c * (self.u_hat @ wanted).squeeze(-1)

    def dense(self, kept: Tensor) -> Tensor:
        return self.routing.neighbourhood.dense(kept)
