"""A forward pass recorded from outside: every stage between the image and the heads, with what went in and came out.

The stages of a model that routes are an initial block, primary capsules, cells, normalisations of all capsules, and
heads. They are found by their classes, wherever a model keeps them, and the network has no branch for being recorded.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from parsecaps.nn.cell import CapsuleCell
from parsecaps.nn.heads import Bottleneck, ConceptLayer, FullyCaps
from parsecaps.nn.normalisation import CapsuleBatchNorm
from parsecaps.nn.primary import InitialBlock, PrimaryCaps
from parsecaps.nn.routing import Messages, Way

_STAGES = (InitialBlock, PrimaryCaps, CapsuleCell, CapsuleBatchNorm, nn.LayerNorm, ConceptLayer, FullyCaps, Bottleneck)


@dataclass(frozen=True, eq=False)
class RecordedWay:
    """What came to the parents of a cell along one way.

    Shapes:
        - total: (B, n', d'), the sum of the messages before the squash. In a pass with gradients it is a node of the
          graph that nothing but this way uses, so the gradient there is that of this way alone.
    """

    way: Way
    messages: Messages
    total: Tensor


@dataclass(frozen=True, eq=False)
class RecordedStage:
    """One stage in one forward pass. `outcome` is a tuple where the stage is a head; a cell has `ways`."""

    name: str
    module: nn.Module
    given: Tensor
    outcome: Any
    ways: tuple[RecordedWay, ...]


@contextmanager
def record_stages(model: nn.Module) -> Iterator[list[RecordedStage]]:
    """Collect the stages of each forward pass made inside the `with`, in the order in which they ran.

    >>> import torch
    >>> from parsecaps.models import ParseCaps
    >>> model = ParseCaps.from_preset("tiny", num_classes=2).eval()
    >>> with record_stages(model) as stages:
    ...     output = model(torch.rand(1, 1, 32, 32))
    >>> [stage.name for stage in stages]
    ['initial', 'primary', 'blocks.0.0', 'blocks.1.0', 'blocks.2.0', 'blocks.2.1', 'norm', 'concepts', 'classes']
    >>> [each.way.name for each in stages[-4].ways]
    ['sparse', 'axial', 'residual']
    """
    recorded: list[RecordedStage] = []
    handles = []
    with record_ways(model) as ways:  # those of the cell that is running
        for name, module in _outermost(model):

            def note(module: nn.Module, given: tuple[Tensor], outcome: Any, name: str = name) -> None:
                recorded.append(RecordedStage(name, module, given[0], outcome, tuple(ways)))
                ways.clear()

            handles.append(module.register_forward_hook(note))
        try:
            yield recorded
        finally:
            for handle in handles:
                handle.remove()


@contextmanager
def record_ways(model: nn.Module) -> Iterator[list[RecordedWay]]:
    """Collect what passes the ways of a model in each forward pass made inside the `with`, in the order they ran."""
    ways: list[RecordedWay] = []

    def note(module: nn.Module, given: tuple[Tensor, Messages], outcome: Tensor) -> Tensor:
        assert isinstance(module, Way)
        total = outcome.view_as(outcome)
        ways.append(RecordedWay(module, given[1], total))
        return total

    handles = [module.register_forward_hook(note) for module in model.modules() if isinstance(module, Way)]
    try:
        yield ways
    finally:
        for handle in handles:
            handle.remove()


def _outermost(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The stages of a model that are not inside another."""
    inside: tuple[str, ...] = ()
    for name, module in model.named_modules():
        if isinstance(module, _STAGES) and not name.startswith(inside):
            inside = (*inside, f"{name}.")
            yield name, module
