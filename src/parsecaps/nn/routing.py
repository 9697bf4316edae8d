"""What a routing is: it makes parents of children, and says itself what each child contributed to each parent.

A routing sums messages from children along one or more ways (the sparse and the axial branch, the residual path of a
cell, ...). Each sum goes through a `Way`, together with the `Messages` it is made of; maps and parse trees come from
there alone. A new routing is a class like `SAARouting` and an entry in `ROUTINGS`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from parsecaps.functional.squash import SquashForm, check_form
from parsecaps.nn.capsules import Normalisation

Choice = Literal["children", "parents"]
_MOST_HEADS, _MOST_ITERATIONS = 1024, 100


@dataclass(frozen=True, kw_only=True)
class RoutingConfig:
    """Which routing, and its settings: one object for a model, passed down to each cell.

    `heads` choose children separately; `radius` is how many children a parent sees beyond its own on each side (None:
    all). `alpha` is that of entmax; `learn_alpha` learns it. `whole_values` gives each head values for all parameters
    of a parent. `jitter` moves the preferred places of children at random in training. `over` is the axis that
    couplings sum to 1 over. `iterations` are those of routing by agreement. A routing reads what it needs, and refuses
    the rest. Our cell differs from the paper's by `locality`, `paper_logits`, `squash_form`, `normalisation` and its
    paths: `residual` around the routing of cells that keep the grid, `norm_before_mlp`, and `mlp_residual`.
    """

    routing: str = "saa"
    heads: int = 4
    radius: int | None = 2
    whole_values: bool = False
    alpha: float = 1.5
    learn_alpha: bool = False
    over: Choice = "children"
    locality: bool = True
    jitter: float = 0.0
    paper_logits: bool = False
    iterations: int = 3
    squash_form: SquashForm = "exponential"
    normalisation: Normalisation = "batch"
    residual: bool = True
    norm_before_mlp: bool = True
    mlp_residual: bool = True

    def __post_init__(self) -> None:
        for name, kinds in (("over", Choice), ("normalisation", Normalisation)):
            if getattr(self, name) not in get_args(kinds):
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose one of {', '.join(get_args(kinds))}")
        if not 1 <= self.heads <= _MOST_HEADS:
            raise ValueError(f"{self.heads} heads cannot choose children; give from 1 to {_MOST_HEADS}")
        if not 1 <= self.iterations <= _MOST_ITERATIONS:
            raise ValueError(f"iterations is {self.iterations}; give from 1 to {_MOST_ITERATIONS}")
        check_form(self.squash_form)


class Messages(ABC):
    """What every child sent to every parent along one way, in one forward pass over a batch.

    A way may keep numbers of pairs in its own form, such as windows; `dense` converts it to (B, heads, parents,
    children).
    """

    @property
    @abstractmethod
    def coupling(self) -> Tensor:
        """How much of each child each parent took, exactly 0 if nothing: (B, ...), in the form kept."""

    @abstractmethod
    def along(self, direction: Tensor) -> Tensor:
        """The inner product of each message with a direction at its parent.

        Shapes:
            - direction: (B, n', d')
            - output: as `coupling`; the sum over heads and children is the inner product of the direction and the sum
        """

    def dense(self, kept: Tensor) -> Tensor:
        """The form kept, of any number of images -> (B, heads, n', n)."""
        return kept


class Way(nn.Module):
    """Identity hook through which each message sum passes, so that it can be recorded.

    `chooses`: the couplings of this way are choices made for each image; otherwise they follow from places alone.

    Shapes:
        - input and output: (B, n', d'), before the squash
    """

    def __init__(self, name: str, *, chooses: bool) -> None:
        super().__init__()
        self.name, self.chooses = name, chooses

    def forward(self, total: Tensor, messages: Messages) -> Tensor:
        return total


class Context(NamedTuple):
    """The size of the maps (B, channels, width, width) by which parents choose their children."""

    channels: int
    width: int


class Routing(nn.Module, ABC):
    """Parents from children, made of nothing but the messages that it sends through its ways.

    Capsules lie on square grids: `width` is that of the children, and `ceil(width / stride)` that of the parents.
    `uses` names the settings of `RoutingConfig` that it reads, beside those of every cell. One that `takes_context` can
    let the maps of another network choose: it is built with `context`, and called with the maps.

    Shapes:
        - input: U_l (B, n, in_dim)
        - output: U_{l+1} (B, n', out_dim)
    """

    uses: ClassVar[frozenset[str]] = frozenset()
    takes_context: ClassVar[bool] = False

    @abstractmethod
    def __init__(self, *, width: int, in_dim: int, out_dim: int, stride: int, config: RoutingConfig) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, u: Tensor) -> Tensor:
        """The parents of the children `u`."""


@dataclass(frozen=True, eq=False)
class OwnCapsule(Messages):
    """The messages of a residual path: each capsule u (B, n, d) to the parent at its own place; kept as (B, n)."""

    u: Tensor

    @property
    def coupling(self) -> Tensor:
        return torch.ones_like(self.u[..., 0])

    def along(self, direction: Tensor) -> Tensor:
        return (direction * self.u).sum(-1)

    def dense(self, kept: Tensor) -> Tensor:
        return torch.diag_embed(kept).unsqueeze(1)
