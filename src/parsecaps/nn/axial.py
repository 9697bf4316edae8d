"""Axial attention along d: which instantiation parameters of the parents count (Sec. 3.2.2, Alg. 1)."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional import squash
from parsecaps.nn.couplings import Coupling
from parsecaps.nn.routing import Messages, RoutingConfig, Way


class AxialAttention(nn.Module):
    """`C_a = entmax(Q^T K_a / sqrt(n') + prior)`, `U_a = squash((C_a V_a^T)^T)`: sparse attention with n and d swapped.

    The children are first brought onto the parents' grid, by the mean over each parent's own children, and mapped
    pointwise to keys and values. Deviation, unless `paper_logits`: a learned prior in the logits, which starts by
    preferring each parameter's own value; without it the branch starts as a random mixture and slows training.

    Shapes:
        - input: children U_l (B, w * w, in_dim), query U_hat (B, n', out_dim)
        - output: U_a (B, n', out_dim)
        - couplings: (B, 1, out_dim, out_dim)
    """

    prior: Tensor

    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__()
        self.width = width
        self.stride = stride
        self.squash_form = config.squash_form
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        self.key = nn.Linear(in_dim, out_dim, bias=False)
        if config.paper_logits:
            self.register_buffer("prior", torch.zeros(out_dim, out_dim), persistent=False)
        else:
            nn.init.normal_(self.key.weight, std=0.06 / math.sqrt(in_dim))
            # just below 1 / (alpha - 1), where entmax gives all to one and the prior would have no gradient
            self.prior = nn.Parameter(min(2.0, 0.95 / max(config.alpha - 1, 1e-9)) * torch.eye(out_dim))
        self.coupling = Coupling(
            branch="axial", between="parameters", dim=-1, alpha=config.alpha, learned=config.learn_alpha
        )
        self.way = Way("axial", chooses=False)

    def forward(self, u: Tensor, q: Tensor) -> Tensor:
        mean = self.onto_parents(u)
        logits = (q.mT @ self.key(mean) / math.sqrt(q.shape[1])).unsqueeze(1)
        c = self.coupling(logits + self.prior.expand_as(logits)).squeeze(1)  # (B, d, d)
        s = self.way(self.value(mean) @ c.mT, MeanChildren(self, u, c))
        return squash(s, self.squash_form)

    def onto_parents(self, u: Tensor) -> Tensor:
        """The children on the parents' grid, each parent's own averaged: (B, w * w, d) -> (B, n', d)."""
        if self.stride == 1:
            return u
        grid = rearrange(u, "b (y x) d -> b d y x", x=self.width)
        return rearrange(F.avg_pool2d(grid, self.stride, ceil_mode=True), "b d y x -> b (y x) d")


@dataclass(frozen=True, eq=False)
class MeanChildren(Messages):
    """The messages of axial attention: each child's values, mixed, as its share of its one parent's mean.

    Every child has one parent, that at its place, so they are kept as (B, n).

    Shapes:
        - u: the children (B, n, in_dim); c: (B, out_dim, out_dim)
    """

    attention: AxialAttention
    u: Tensor
    c: Tensor

    @cached_property
    def parent(self) -> Tensor:
        """The parent of each child: (n,)."""
        steps = torch.arange(self.attention.width, device=self.u.device) // self.attention.stride
        return (steps.unsqueeze(1) * (int(steps[-1]) + 1) + steps).flatten()

    @cached_property
    def coupling(self) -> Tensor:
        share = 1 / self.parent.bincount()[self.parent]
        return share.to(self.u).expand(len(self.u), -1)

    @cached_property
    def sent(self) -> Tensor:
        """What each child sent, before its share is taken: (B, n, out_dim)."""
        sent: Tensor = self.attention.value(self.u) @ self.c.mT
        return sent

    def along(self, direction: Tensor) -> Tensor:
        return (direction[:, self.parent] * self.sent).sum(-1) * self.coupling

    def dense(self, kept: Tensor) -> Tensor:
        out = kept.new_zeros(len(kept), int(self.parent[-1]) + 1, kept.shape[1])
        index = self.parent.view(1, 1, -1).expand(len(kept), 1, -1)
        return out.scatter_(1, index, kept.unsqueeze(1)).unsqueeze(1)
