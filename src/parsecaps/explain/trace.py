"""The whole routing of one batch, from one forward pass: what each child sent to each parent, and by which coupling.

In a cell a parent is `g(C V) + g(A) (+ itself)` before its normalisation and its MLP: the coupled values of the sparse
branch, the mean children of the axial branch with their parameters mixed, and where the grid stays the capsule itself.
All three are sums over children, so what each child gave is exact (Sec. 3.2.2, Alg. 1).
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

import torch
from einops import einsum
from torch import Tensor, nn

from parsecaps.nn.cell import CapsuleCell
from parsecaps.nn.heads import Bottleneck, ConceptLayer, FullyCaps
from parsecaps.nn.initial import InitialBlock
from parsecaps.nn.primary import PrimaryCaps
from parsecaps.nn.recorder import RecordedStage, record_stages
from parsecaps.types import Output


@dataclass(frozen=True)
class AxialRoutes:
    """The axial branch of a cell: `M V_a C_a^T`.

    Shapes:
        - mean: M (n', n), how much of each child is in each parent's mean, in rows that sum to 1
        - coupling: C_a (B, d', d')
        - values: V_a C_a^T (B, n, d'), what each child sent
        - routed: (B, n', d'), before the squash
    """

    mean: Tensor
    coupling: Tensor
    values: Tensor
    routed: Tensor


@dataclass(frozen=True)
class CellRoutes:
    """What one cell did with one batch; `cell` is the module, for what it does within a capsule.

    Shapes:
        - children: U_l (B, n, d)
        - parents: U_{l+1} (B, n', d')
        - coupling: C (B, heads, n', n), an exact 0 where a parent did not choose a child
        - values: V (B, heads, n, d'), what each child sent; 0 outside a head's own parameters, where it has some
        - routed: C V (B, n', d'), before the squash
    """

    name: str
    cell: CapsuleCell
    children: Tensor
    parents: Tensor
    coupling: Tensor
    values: Tensor
    routed: Tensor
    axial: AxialRoutes | None

    @property
    def residual(self) -> bool:
        """Whether each parent also keeps the capsule that was at its place."""
        return self.cell.residual

    @property
    def heads(self) -> int:
        """How many times each parent chooses its children."""
        return self.coupling.shape[1]


@dataclass(frozen=True)
class Routes:
    """One forward pass of one batch, as a tree of capsules from the image to the heads.

    `norm` stands between the last cell and the heads. A model without concepts has no `concepts`; one that decides by
    its concepts alone has a `Bottleneck` for `classes`.

    Shapes:
        - image: (B, channels, size, size), as the initial block gets it: standardised
        - top: U_L (B, n_L, d_L), as the heads get it: normalised
    """

    output: Output
    image: Tensor
    initial: InitialBlock
    primary_caps: PrimaryCaps
    cells: tuple[CellRoutes, ...]
    norm: nn.Module
    top: Tensor
    concepts: ConceptLayer | None
    classes: FullyCaps | Bottleneck

    @property
    def primary(self) -> Tensor:
        """The leaves U_1 (B, n_1, d_1)."""
        return self.cells[0].children

    @property
    def layers(self) -> tuple[Tensor, ...]:
        """The capsules from the primary ones to those of the last cell, each (B, n, d)."""
        return (self.primary, *(cell.parents for cell in self.cells))

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of the square grid of each of `layers`."""
        return tuple(math.isqrt(u.shape[1]) for u in self.layers)

    @property
    def concept_shares(self) -> Tensor | None:
        """What each top capsule adds to each concept capsule before its squash: (B, m, n_L, d_c)."""
        return None if self.concepts is None else self.concepts.readout.shares(self.top)

    @property
    def class_shares(self) -> Tensor | None:
        """The same for the class capsules (B, classes, n_L, d_class); None where concepts alone decide."""
        return self.classes.readout.shares(self.top) if isinstance(self.classes, FullyCaps) else None

    def leaves(self, image: Tensor) -> Tensor:
        """The primary capsules (B, n_1, d_1) of a standardised image (B, channels, size, size)."""
        leaves: Tensor = self.primary_caps(self.initial(image))
        return leaves

    @cached_property
    def tower(self) -> nn.Sequential:
        """The cells alone, from primary capsules (B, n_1, d_1) to those of the last cell (B, n_L, d_L)."""
        return nn.Sequential(*(cell.cell for cell in self.cells))

    def climb(self, leaves: Tensor) -> tuple[CellRoutes, ...]:
        """Send other primary capsules (B, n_1, d_1) up through the same cells, which choose anew."""
        with record_stages(self.tower) as stages:
            self.tower(leaves)
        return tuple(_cell_routes(stage, cell.name) for stage, cell in zip(stages, self.cells, strict=True))


@torch.no_grad()
def trace(model: nn.Module, image: Tensor) -> Routes:
    """Run a model that is in evaluation mode once on `image` (B, channels, size, size), and keep its routes.

    >>> from parsecaps.models import ParseCaps
    >>> routes = trace(ParseCaps.from_preset("tiny", num_classes=2).eval(), torch.rand(1, 1, 32, 32))
    >>> routes.widths
    (16, 8, 4, 2, 2)
    """
    kind = type(model).__name__
    if model.training:
        raise ValueError(f"this {kind} is in training mode, in which it answers by chance; call eval() first")
    with record_stages(model) as stages:
        output: Output = model(image)
    chain = [stage for stage in stages if not _is_head(stage)]
    concepts = [stage.module for stage in stages if isinstance(stage.module, ConceptLayer)]
    classes = [stage.module for stage in stages if isinstance(stage.module, FullyCaps | Bottleneck)]
    if not _is_tree(chain) or len(classes) != 1 or len(concepts) > 1:
        names = ", ".join(stage.name for stage in stages)
        raise ValueError(f"the stages of this {kind} ({names}) are no tree of cells; choose a gradient map")
    initial, primary, *cells, norm = chain
    return Routes(
        output=output,
        image=initial.given,
        initial=cast(InitialBlock, initial.module),
        primary_caps=cast(PrimaryCaps, primary.module),
        cells=tuple(_cell_routes(cell, cell.name) for cell in cells),
        norm=norm.module,
        top=norm.outcome,
        concepts=concepts[0] if concepts else None,
        classes=classes[0],
    )


def _is_head(stage: RecordedStage) -> bool:
    return isinstance(stage.module, ConceptLayer | FullyCaps | Bottleneck)


def _is_tree(chain: list[RecordedStage]) -> bool:
    """Whether these are an initial block, primary capsules, cells and a normalisation, each fed by the one before."""
    kinds = (InitialBlock, PrimaryCaps, *(CapsuleCell for _ in chain[2:-1]))
    return (
        len(chain) >= 4
        and all(isinstance(stage.module, kind) for stage, kind in zip(chain, kinds, strict=False))
        and not isinstance(chain[-1].module, CapsuleCell)
        and all(torch.equal(low.outcome, high.given) for low, high in pairwise(chain))
    )


def _cell_routes(stage: RecordedStage, name: str) -> CellRoutes:
    cell, u, c = cast(CapsuleCell, stage.module), stage.given, stage.couplings["sparse"]
    with torch.no_grad():
        v = einsum(u, cell.routing.sparse.value_maps, "b n i, h i d -> b h n d")
        routed = (c @ v).sum(1)
        branch, axial = cell.routing.axial, None
        if branch is not None:
            mean = branch.onto_parents(torch.eye(u.shape[1], dtype=u.dtype, device=u.device).unsqueeze(0))[0]
            mixing = stage.couplings["axial"].squeeze(1)
            sent = branch.value(u) @ mixing.mT
            axial = AxialRoutes(mean, mixing, sent, mean @ sent)
    return CellRoutes(name, cell, u, stage.outcome, c, v, routed, axial)
