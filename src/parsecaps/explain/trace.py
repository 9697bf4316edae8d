"""One forward pass of one batch, recorded: the capsules of every layer and the messages that made them.

All that explanations show of a model comes from here. A cell makes a parent of sums of messages from its children, one
sum for each way (`nn.routing`), and what it does after that stays within the capsule.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from parsecaps.nn.cell import CapsuleCell
from parsecaps.nn.heads import Bottleneck, ConceptLayer, FullyCaps
from parsecaps.nn.primary import InitialBlock, PrimaryCaps
from parsecaps.nn.recorder import RecordedStage, record_stages
from parsecaps.nn.routing import Way
from parsecaps.types import Output

About = Literal["concepts", "classes"]


class Target(NamedTuple):
    """The presence of a concept, or the logit of a class, by its number among the model's outputs.

    In a graph that is exported it may be a tensor without axes: a number that is known when the graph runs.
    """

    about: About
    index: int  # type: ignore[assignment]  # the name is also that of a method of tuples


def neutral_image(image: Tensor) -> Tensor:
    """A picture (B, channels, H, W) with nothing in it: everywhere the median colour of `image`."""
    return image.flatten(2).median(2).values[:, :, None, None].expand_as(image)


@dataclass(frozen=True, eq=False)
class Trace:
    """One forward pass of one batch, as a tree of capsules from the image to the heads.

    `norm` stands between the last cell and the heads. A model without concepts has no `concepts`; one that decides by
    its concepts alone has a `Bottleneck` for `classes`.

    Shapes:
        - image: (B, channels, size, size), as the initial block gets it: standardised
    """

    output: Output
    image: Tensor
    initial: InitialBlock
    primary_caps: PrimaryCaps
    cells: tuple[RecordedStage, ...]
    norm: nn.Module
    concepts: ConceptLayer | None
    classes: FullyCaps | Bottleneck

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
        leaves: Tensor = self.primary_caps(self.initial(image))
        return leaves

    @cached_property
    def tower(self) -> nn.Sequential:
        """The cells alone, from primary capsules (B, n_1, d_1) to those of the last cell (B, n_L, d_L)."""
        return nn.Sequential(*(cell.module for cell in self.cells))

    def read_out(self, last: Tensor) -> dict[About, Tensor]:
        """The presences (B, m), where there are concepts, and the logits (B, K), from the last cell's capsules."""
        top = self.norm(last)
        values: dict[About, Tensor] = {}
        if self.concepts is not None:
            values["concepts"] = self.concepts(top)[1]
        given = values["concepts"] if isinstance(self.classes, Bottleneck) else top
        values["classes"] = self.classes(given)[0]
        return values


def has_tree(model: nn.Module) -> bool:
    """Whether a model has cells of capsules, so that a parse tree can be read from it."""
    return any(isinstance(module, CapsuleCell) for module in model.modules())


def has_class_routes(model: nn.Module) -> bool:
    """Whether a model without cells routes capsules of known places to its classes."""
    return bool(getattr(model, "class_children", ())) and any(isinstance(module, Way) for module in model.modules())


def has_routes(model: nn.Module) -> bool:
    """Whether a model sends messages from capsules to capsules, so that maps can follow them."""
    return has_tree(model) or has_class_routes(model)


def describe_routes(model: nn.Module) -> str:
    """What a model without a tree has instead, in words."""
    kind = type(model).__name__
    if has_class_routes(model):
        return f"{kind} has one layer of routes, to its classes, and no tree of cells"
    return f"{kind} has no routes to follow"


@torch.no_grad()
def trace(model: nn.Module, image: Tensor) -> Trace:
    """Run a model that is in evaluation mode once on `image` (B, channels, size, size), and keep its routes.

    >>> from parsecaps.models import ParseCaps
    >>> trace(ParseCaps.from_preset("tiny", num_classes=2).eval(), torch.rand(1, 1, 32, 32)).widths
    (16, 8, 4, 2, 2)
    """
    kind = type(model).__name__
    if model.training:
        raise ValueError(f"this {kind} is in training mode, in which it answers by chance; call eval() first")
    if not has_tree(model):
        advice = "ask for its maps alone" if has_class_routes(model) else "choose a gradient map"
        raise ValueError(f"{describe_routes(model)}; {advice}")
    with record_stages(model) as stages:
        output: Output = model(image)
    chain = [stage for stage in stages if not _is_head(stage)]
    concepts = [stage.module for stage in stages if isinstance(stage.module, ConceptLayer)]
    classes = [stage.module for stage in stages if isinstance(stage.module, FullyCaps | Bottleneck)]
    if not _is_tree(chain) or len(classes) != 1 or len(concepts) > 1:
        names = ", ".join(stage.name for stage in stages)
        raise ValueError(f"the stages of this {kind} ({names}) are no tree of cells; choose a gradient map")
    initial, primary, *cells, norm = chain
    return Trace(
        output=output,
        image=initial.given,
        initial=cast(InitialBlock, initial.module),
        primary_caps=cast(PrimaryCaps, primary.module),
        cells=tuple(cells),
        norm=norm.module,
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
        and all(low.outcome is high.given or torch.equal(low.outcome, high.given) for low, high in pairwise(chain))
    )
