"""The routes that a model states in `routes(image)`, a tree or one layer, from which all maps and parse trees come."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from parsecaps.nn.capsules import CapsuleGrid, InitialBlock, PrimaryCaps
from parsecaps.nn.heads import ConceptLayer, LinearReasoning
from parsecaps.nn.recorder import RecordedStage, RecordedWay, record_stages, record_ways
from parsecaps.nn.trunk import TrunkBlock
from parsecaps.types import Output

About = Literal["concepts", "classes"]
RouteForm = Literal["tree", "layer"]

_GRADIENTS = "choose a gradient map"


@dataclass(frozen=True, eq=False)
class RouteTree:
    """One forward pass of one batch, as a tree of capsules from the image to the heads.

    A cell makes a parent of sums of messages from its children, one for each way; all after that stays within the
    capsule. `norm` follows the last cell. A model that decides by its concepts alone has a `reasoning`.

    Shapes:
        - image: (B, channels, size, size), as the initial block gets it: standardised
        - context: the maps by which cells choose (B, context channels, W, W), None without a second stream
    """

    output: Output
    image: Tensor
    context: Tensor | None
    initial: InitialBlock | TrunkBlock
    primary_caps: PrimaryCaps
    cells: tuple[RecordedStage, ...]
    norm: nn.Module
    concepts: ConceptLayer | None
    classes: nn.Module
    reasoning: LinearReasoning | None

    @property
    def layers(self) -> tuple[Tensor, ...]:
        """The capsules from the primary ones to those of the last cell, each (B, n, d)."""
        return (self.cells[0].given, *(cell.outcome for cell in self.cells))

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of the square grid of each of `layers`."""
        return tuple(math.isqrt(u.shape[1]) for u in self.layers)

    def leaves(self, image: Tensor) -> Tensor:
        """The primary capsules (B, n_1, d_1) of a standardised image (B, channels, size, size)."""
        return self.primary_caps(self.initial(image))  # type: ignore[no-any-return]

    def run_cells(self, leaves: Tensor) -> Tensor:
        """Run the cells alone: primary capsules (S * B, n_1, d_1) -> those of the last cell (S * B, n_L, d_L).

        S is the number of points on a path; the context stays that of the image.
        """
        context = [] if self.context is None else [self.context.repeat(len(leaves) // len(self.context), 1, 1, 1)]
        u = leaves
        for cell in self.cells:
            u = cell.module(u, *context)
        return u

    def read_out(self, last: Tensor) -> dict[About, Tensor]:
        """The presences (B, m), where there are concepts, and the logits (B, K), from the last cell's capsules."""
        top = self.norm(last)
        values: dict[About, Tensor] = {}
        if self.concepts is not None:
            values["concepts"] = self.concepts(top)[1]
        values["classes"] = self.classes(top if self.reasoning is None else values["concepts"])[0]
        return values


@torch.no_grad()
def record_chain(network: nn.Module, image: Tensor, layers: Sequence[nn.Module]) -> tuple[Output, list[RecordedStage]]:
    """Run a network once on `image` (B, channels, size, size) and keep these layers, each fed by the one before."""
    with record_stages(layers) as chain:
        output: Output = network(image)
    if not all(low.outcome is high.given or torch.equal(low.outcome, high.given) for low, high in pairwise(chain)):
        kind = type(network).__name__
        raise ValueError(f"the layers of this {kind} are no tree of cells, for something lies between; {_GRADIENTS}")
    return output, chain


@dataclass(frozen=True, eq=False)
class RouteLayer:
    """One forward pass of one batch, with the messages from capsules on grids to those of the classes or attributes.

    The children come grid by grid. The output has a graph that leads back to the messages.
    """

    output: Output
    way: RecordedWay
    grids: tuple[CapsuleGrid, ...]

    @classmethod
    def record(cls, network: nn.Module, image: Tensor, grids: tuple[CapsuleGrid, ...]) -> "RouteLayer":
        """Run a network once on `image` (B, channels, size, size); its last way is the one to the classes."""
        with torch.enable_grad(), record_ways(network) as ways:
            output: Output = network(image.detach().requires_grad_())
        children = ways[-1].messages.dense(ways[-1].messages.coupling).shape[-1]
        if children != (said := sum(grid.capsules for grid in grids)):
            there = f"{said} children are said to be routed to its classes, but {children} are"
            raise ValueError(f"{there}; mend class_children of {type(network).__name__}")
        return cls(output, ways[-1], grids)

    def contributions(self, values: Tensor) -> Tensor:
        """What each child contributed to scores or presences of the output: (B,) -> (B, heads, K, n), signed.

        The inner product of each message with the gradient at the sum of the messages. Where the score is the length of
        a squashed sum, that is the share of each child in the length before the squash, times one number.
        """
        with torch.enable_grad():
            (direction,) = torch.autograd.grad(values.sum(), self.way.total, retain_graph=True)
        messages = self.way.messages
        with torch.no_grad():
            return messages.dense(messages.along(direction))
