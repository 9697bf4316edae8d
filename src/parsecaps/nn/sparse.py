"""Sparse attention: each parent chooses its children (Sec. 3.2.2, Eq. 3 and 4)."""

import math
from typing import Literal, get_args

import torch
from einops import rearrange
from torch import Tensor, nn

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm, check_form
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.locality import LocalityPrior, Neighbourhood
from parsecaps.nn.normalisation import Normalisation, capsule_norm

Choice = Literal["children", "parents"]


class SparseAttention(nn.Module):
    """`C = entmax(Q K^T / sqrt(d) + prior)`, `U_s = squash(C V)`, with keys and values pointwise in the children.

    Heads are groups of instantiation parameters that choose their children separately. `over="children"` lets a parent
    share itself out among its children, `over="parents"` a child among its parents. Deviations from the paper: heads,
    the locality prior, and, unless `paper_logits`, a learned temperature and normalised keys (`docs/paper.md`).

    Shapes:
        - input: children U_l (B, n, in_dim), query U_hat (B, n', out_dim)
        - output: U_s (B, n', out_dim)
        - couplings: (B, heads, n', n), kept as (B, n', heads, window) where the neighbourhood is windowed
    """

    own: Tensor
    temperature: Tensor

    def __init__(
        self,
        *,
        width: int,
        in_dim: int,
        out_dim: int,
        stride: int,
        heads: int,
        radius: int | None,
        locality: bool,
        content: bool,
        paper_logits: bool,
        over: Choice,
        alpha: float,
        learn_alpha: bool,
        squash_form: SquashForm,
        normalisation: Normalisation,
    ) -> None:
        super().__init__()
        if over not in get_args(Choice):
            raise ValueError(f"over is {over!r}; choose one of {', '.join(get_args(Choice))}")
        if heads < 1:
            raise ValueError(f"{heads} heads cannot choose children; give at least 1")
        if out_dim % heads:
            raise ValueError(f"{heads} heads do not divide a capsule dimension of {out_dim}; choose a divisor")
        self.neighbourhood = Neighbourhood(width=width, stride=stride, radius=radius, dense=over == "parents")
        self.heads = heads
        self.squash_form = check_form(squash_form)
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        if in_dim == out_dim:
            nn.init.eye_(self.value.weight)
        else:
            nn.init.orthogonal_(self.value.weight)
        self.prior = LocalityPrior(heads=heads, neighbourhood=self.neighbourhood, preference=locality)
        if content:
            self.key = nn.Linear(in_dim, out_dim, bias=False)
            shift_matters = over == "parents"  # the same shift for all children of a parent changes no coupling
            key_norm = capsule_norm(normalisation, out_dim, bias=shift_matters)
            self.key_norm = nn.Identity() if paper_logits else key_norm
            if paper_logits:
                self.register_buffer("temperature", torch.ones(heads), persistent=False)
            else:
                self.temperature = nn.Parameter(torch.ones(heads))
        own = torch.eye(heads).repeat_interleave(out_dim // heads, dim=1)
        self.register_buffer("own", own, persistent=False)  # (heads, out_dim): which parameters are whose
        self.coupling = Coupling(
            branch="sparse",
            dim=-2 if over == "parents" else -1,
            alpha=alpha,
            learned=learn_alpha,
            allowed=self.neighbourhood.allowed,
            layout=self.neighbourhood,
        )

    def forward(self, u: Tensor, q: Tensor | None) -> Tensor:
        v = self.value(u)
        route = self._windowed if self.neighbourhood.windowed else self._dense
        return squash(route(u, q, v), self.squash_form)

    def _dense(self, u: Tensor, q: Tensor | None, v: Tensor) -> Tensor:
        logits = self.prior().expand(u.shape[0], self.heads, -1, -1)
        if q is not None:
            q = rearrange(q * self._sharpness(), "b n (h d) -> b h n d", h=self.heads)
            k = rearrange(self.key_norm(self.key(u)), "b n (h d) -> b h d n", h=self.heads)
            logits = q @ k + logits
        c = self.coupling(logits)  # (B, heads, parents, children)
        s: Tensor = c @ rearrange(v, "b n (h d) -> b h n d", h=self.heads)
        return rearrange(s, "b h n d -> b n (h d)")

    def _windowed(self, u: Tensor, q: Tensor | None, v: Tensor) -> Tensor:
        """The same by one small matrix product per parent, in which each head sees only its own parameters."""
        parents = self.prior.outside.shape[0]
        logits = self.prior().expand(u.shape[0], parents, self.heads, -1)
        if q is not None:
            own = (q * self._sharpness()).unsqueeze(2) * self.own  # (B, parents, heads, heads * d)
            k = self.neighbourhood.gather(self.key_norm(self.key(u)))
            logits = own @ k.mT + logits
        c = self.coupling(logits)  # (B, parents, heads, window)
        s: Tensor = c @ self.neighbourhood.gather(v)
        return (s * self.own).sum(2)

    def _sharpness(self) -> Tensor:
        """(heads * d,): the temperature of each head over the square root of its width, for each of its parameters."""
        width = self.own.shape[1] // self.heads
        return (self.temperature / math.sqrt(width)).repeat_interleave(width)
