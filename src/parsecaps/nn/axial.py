"""Axial attention along d: which instantiation parameters of the parents count (Sec. 3.2.2, Alg. 1)."""

import math

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn import functional as F

from parsecaps.functional import squash
from parsecaps.functional.squash import SquashForm
from parsecaps.nn.couplings import Coupling


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

    def __init__(
        self,
        *,
        width: int,
        in_dim: int,
        out_dim: int,
        stride: int,
        content: bool,
        paper_logits: bool,
        alpha: float,
        learn_alpha: bool,
        squash_form: SquashForm,
    ) -> None:
        super().__init__()
        self.width = width
        self.stride = stride
        self.squash_form: SquashForm = squash_form
        self.value = nn.Linear(in_dim, out_dim, bias=False)
        if content:
            self.key = nn.Linear(in_dim, out_dim, bias=False)
            if not paper_logits:
                nn.init.normal_(self.key.weight, std=0.06 / math.sqrt(in_dim))
        if paper_logits:
            self.register_buffer("prior", torch.zeros(out_dim, out_dim), persistent=False)
        else:
            # just below 1 / (alpha - 1), where entmax gives all to one and the prior would have no gradient
            self.prior = nn.Parameter(min(2.0, 0.95 / max(alpha - 1, 1e-9)) * torch.eye(out_dim))
        self.coupling = Coupling(branch="axial", dim=-1, alpha=alpha, learned=learn_alpha)

    def forward(self, u: Tensor, q: Tensor | None) -> Tensor:
        u = self.onto_parents(u)
        logits = self.prior.expand(u.shape[0], 1, -1, -1)
        if q is not None:
            logits = (q.mT @ self.key(u) / math.sqrt(q.shape[1])).unsqueeze(1) + logits
        c = self.coupling(logits).squeeze(1)  # (B, d, d)
        return squash(self.value(u) @ c.mT, self.squash_form)

    def onto_parents(self, u: Tensor) -> Tensor:
        """The children on the parents' grid, each parent's own averaged: (B, w * w, d) -> (B, n', d)."""
        if self.stride == 1:
            return u
        grid = rearrange(u, "b (y x) d -> b d y x", x=self.width)
        return rearrange(F.avg_pool2d(grid, self.stride, ceil_mode=True), "b d y x -> b (y x) d")
