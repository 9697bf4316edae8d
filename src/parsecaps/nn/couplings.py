"""Coupling coefficients, computed by one small module that recorders and interventions hook onto (`nn.recorder`)."""

from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from parsecaps.functional import entmax

Between = Literal["capsules", "parameters"]
Rule = Callable[["Coupling", Tensor], Tensor]


class Layout(Protocol):
    """The form in which couplings are kept, if not as (B, heads, parents, children)."""

    def dense(self, c: Tensor) -> Tensor:
        """Couplings as they are kept -> (B, heads, parents, children)."""

    def kept(self, dense: Tensor) -> Tensor:
        """The inverse of `dense`."""


class OneHead:
    """The layout (B, parents, children), of couplings that have no heads."""

    def dense(self, c: Tensor) -> Tensor:
        return c.unsqueeze(1)

    def kept(self, dense: Tensor) -> Tensor:
        return dense.squeeze(1)


class Coupling(nn.Module):
    """alpha-entmax over the axis `dim` of the logits (Eq. 3, Eq. a_entmax).

    `between` says what is coupled: children and parents, or instantiation parameters, as in the axial branch. `learned`
    makes alpha a parameter, as in the work the paper cites for it. `layout` converts the result to `(B, heads, parents,
    children)` and back; `allowed`, shaped as the logits, marks couplings that may be above zero.

    Shapes:
        - input and output: (B, heads, ...) between capsules, (B, 1, d, d) between parameters
    """

    allowed: Tensor | None

    def __init__(
        self,
        *,
        branch: str,
        between: Between = "capsules",
        dim: int,
        alpha: float,
        learned: bool = False,
        allowed: Tensor | None = None,
        layout: Layout | None = None,
    ) -> None:
        super().__init__()
        if not 1 <= alpha <= 2:
            raise ValueError(f"alpha is {alpha}; choose a number from 1 (softmax) to 2 (sparsemax)")
        self.branch = branch
        self.between: Between = between
        self.dim = dim
        self.alpha: float | Tensor = nn.Parameter(torch.tensor(float(alpha))) if learned else alpha
        self.layout = layout
        self.register_buffer("allowed", allowed, persistent=False)

    def forward(self, logits: Tensor) -> Tensor:
        if not isinstance(self.alpha, Tensor) and self.alpha == 1 and self.allowed is None:
            return logits.softmax(self.dim)  # the same in one pass, where no parent can be without a child
        return entmax(logits, self.alpha, self.dim)

    def dense(self, c: Tensor) -> Tensor:
        """Couplings as this module gives them -> (B, heads, parents, children)."""
        return c if self.layout is None else self.layout.dense(c)

    def kept(self, dense: Tensor) -> Tensor:
        """(B, heads, parents, children) -> couplings as this module gives them."""
        return dense if self.layout is None else self.layout.kept(dense)


def uniform(module: Coupling, c: Tensor) -> Tensor:
    """The rule by which all allowed children count the same."""
    allowed = torch.ones_like(c) if module.allowed is None else module.allowed.expand_as(c).to(c.dtype)
    return allowed / allowed.sum(module.dim, keepdim=True)


def given(couplings: Mapping[Coupling, Tensor]) -> Rule:
    """The rule by which parents use these couplings, in the form that each module gives: (B, ...), or (1, ...)."""
    return lambda module, c: couplings[module].to(c).expand_as(c).contiguous()


def strongest(count: int) -> Rule:
    """Each parent keeps its `count` strongest children in each head, renormalised; axial couplings stay as they are."""

    def rule(module: Coupling, c: Tensor) -> Tensor:
        if module.between == "parameters" or count >= c.shape[-1]:
            return c
        kept = torch.zeros_like(c).scatter(-1, c.topk(count, -1).indices, 1.0) * c  # children lie on the last axis
        total = kept.sum(module.dim, keepdim=True)
        return kept / torch.where(total > 0, total, 1)

    return rule
