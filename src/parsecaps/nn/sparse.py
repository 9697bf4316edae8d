"""Sparse attention: each parent chooses its children (Sec. 3.2.2, Eq. 3 and 4)."""

import math
from dataclasses import dataclass

import torch
from einops import einsum, rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.locality import LocalityPrior, Neighbourhood
from parsecaps.nn.normalisation import CapsuleScale, capsule_norm
from parsecaps.nn.routing import Messages, RoutingConfig, Way


class SparseAttention(nn.Module):
    """`C = entmax(Q K^T / sqrt(d) + prior)`, `U_s = squash(C V)`, with keys and values pointwise in the children.

    Heads choose their children separately. Each is a group of the parent's instantiation parameters; with
    `whole_values`, each head has values of its own for all of them, `U_s = squash(sum over heads of C_h V_h)`, so that
    a parameter can be told by children at several places, as it is in a convolution. `over="children"` lets a parent
    share itself out among its children, `over="parents"` a child among its parents. Deviations from the paper: heads,
    the locality prior, and, unless `paper_logits`, a learned temperature and normalised keys (`docs/paper.md`).

    Shapes:
        - input: children U_l (B, n, in_dim), query U_hat (B, n', out_dim)
        - output: U_s (B, n', out_dim)
        - couplings: (B, heads, n', n), kept as (B, n', heads, window) where the neighbourhood is windowed
    """

    temperature: Tensor

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__()
        heads, over = config.heads, config.over
        if out_dim % heads:
            raise ValueError(f"{heads} heads do not divide a capsule dimension of {out_dim}; choose a divisor")
        # a window is of children as they are; keys that are normalised one by one are not linear in them
        linear = over == "children" and (config.paper_logits or config.normalisation == "batch")
        self.neighbourhood = Neighbourhood(
            width=width, stride=stride, radius=config.radius, windowed=None if linear else False
        )
        self.heads = heads
        self.whole_values = config.whole_values
        self.squash_form = config.squash_form
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        if in_dim == out_dim:
            nn.init.eye_(self.value.weight)
        else:
            nn.init.orthogonal_(self.value.weight)
        if self.whole_values:  # starts as groups do: what a head says of the parameters of another is 0
            start = rearrange(_in_groups(self.value.weight.detach(), heads), "h i d -> d (h i)")
            self.value = nn.Linear(heads * in_dim, out_dim, bias=False)
            self.value.weight = nn.Parameter(start.contiguous())
        self.prior = LocalityPrior(
            heads=heads, neighbourhood=self.neighbourhood, preference=config.locality, jitter=config.jitter
        )
        self.key = nn.Linear(in_dim, out_dim, bias=False)
        self.key_norm: nn.Module = nn.Identity()
        if config.paper_logits:
            self.register_buffer("temperature", torch.ones(heads), persistent=False)
        else:
            # the same shift for all children of a parent changes no coupling, but among its parents it would
            self.key_norm = (
                CapsuleScale(out_dim) if linear else capsule_norm(config.normalisation, out_dim, bias=over == "parents")
            )
            self.temperature = nn.Parameter(torch.ones(heads))
        self.coupling = Coupling(
            branch="sparse",
            dim=-2 if over == "parents" else -1,
            alpha=config.alpha,
            learned=config.learn_alpha,
            allowed=self.neighbourhood.allowed,
            layout=self.neighbourhood,
        )
        self.way = Way("sparse", chooses=True)

    def forward(self, u: Tensor, q: Tensor) -> Tensor:
        messages, s = (self._windowed if self.neighbourhood.windowed else self._dense)(u, q)
        return squash(self.way(s, messages), self.squash_form)

    @property
    def value_maps(self) -> Tensor:
        """(heads, in_dim, out_dim): what each head makes of a child for the whole parent; 0 outside its own group."""
        if self.whole_values:
            return rearrange(self.value.weight, "d (h i) -> h i d", h=self.heads)
        return _in_groups(self.value.weight, self.heads)

    def _dense(self, u: Tensor, q: Tensor) -> tuple["CoupledValues", Tensor]:
        """The messages, and their sum (B, parents, out_dim)."""
        k = self.key(u)
        if isinstance(self.key_norm, CapsuleScale):
            q = q * self.key_norm(k)
        else:
            k = self.key_norm(k)
        q = rearrange(q * self._sharpness(), "b n (h d) -> b h n d", h=self.heads)
        prior = self.prior(u.shape[0]).expand(u.shape[0], self.heads, -1, -1)
        c: Tensor = self.coupling(q @ rearrange(k, "b n (h d) -> b h d n", h=self.heads) + prior)
        messages = CoupledValues(self, u, c)
        if self.whole_values:
            return messages, self._values_of(rearrange(c @ u.unsqueeze(1), "b h n i -> b n h i"))
        s = c @ rearrange(self.value(u), "b n (h d) -> b h n d", h=self.heads)
        return messages, rearrange(s, "b h n d -> b n (h d)")

    def _windowed(self, u: Tensor, q: Tensor) -> tuple["CoupledValues", Tensor]:
        """The same by small matrix products per parent, with the children as they are.

        Keys and values are linear in the children, so the query is brought to the children instead of each child of
        each window to the query, and what a head has collected is mapped to its values once: `q (W u) = (q W) u`.
        """
        children = self.neighbourhood.gather(u)  # (B, parents, window, in_dim)
        parents = children.shape[1]
        scale = self.key_norm(self.key(u)) if isinstance(self.key_norm, CapsuleScale) else 1.0
        asked = rearrange(q * (self._sharpness() * scale), "b n (h d) -> h (b n) d", h=self.heads)
        asked = asked @ rearrange(self.key.weight, "(h d) i -> h d i", h=self.heads)
        asked = rearrange(asked, "h (b n) i -> b n h i", n=parents)
        prior = self.prior(u.shape[0]).expand(u.shape[0], parents, self.heads, -1)
        c: Tensor = self.coupling(asked @ children.mT + prior)  # (B, parents, heads, window)
        return CoupledValues(self, children, c), self._values_of(c @ children)

    def _values_of(self, collected: Tensor) -> Tensor:
        """What the heads collected from their children (B, parents, heads, in_dim), as values (B, parents, out_dim)."""
        if self.whole_values:
            return self.value(collected.flatten(2))  # type: ignore[no-any-return]
        by_head = rearrange(collected, "b n h i -> h (b n) i")
        s: Tensor = by_head @ rearrange(self.value.weight, "(h d) i -> h i d", h=self.heads)
        return rearrange(s, "h (b n) d -> b n (h d)", n=collected.shape[1])

    def _sharpness(self) -> Tensor:
        """(heads * d,): the temperature of each head over the square root of its width, for each of its parameters."""
        width = self.key.weight.shape[0] // self.heads
        return (self.temperature / math.sqrt(width)).repeat_interleave(width)


def _in_groups(weight: Tensor, heads: int) -> Tensor:
    """A map (out_dim, in_dim) as those of the heads, each to its own group of the output: (heads, in_dim, out_dim)."""
    own = torch.eye(heads, dtype=weight.dtype, device=weight.device).repeat_interleave(len(weight) // heads, 0)
    return einsum(weight, own, "d i, d h -> h i d")


@dataclass(frozen=True, eq=False)
class CoupledValues(Messages):
    """The messages `c v` of sparse attention, kept as its couplings are.

    Shapes:
        - u: the children (B, n, in_dim), or their windows (B, n', window, in_dim)
        - c: (B, heads, n', n), or windowed (B, n', heads, window)
    """

    attention: SparseAttention
    u: Tensor
    c: Tensor

    @property
    def coupling(self) -> Tensor:
        return self.c

    def along(self, direction: Tensor) -> Tensor:
        asked = einsum(direction, self.attention.value_maps, "b n d, h i d -> b n h i")
        if self.attention.neighbourhood.windowed:
            return self.c * (asked @ self.u.mT)
        return self.c * (rearrange(asked, "b n h i -> b h n i") @ self.u.mT.unsqueeze(1))

    def dense(self, kept: Tensor) -> Tensor:
        return self.attention.neighbourhood.dense(kept)
