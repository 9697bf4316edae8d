"""A forward pass watched from outside: every stage between the image and the heads, with what went in and came out.

The stages of a model that routes are an initial block, primary capsules, cells, normalisations of all capsules, and
heads. They are found by their classes, wherever a model keeps them, and the network has no branch for being watched.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from parsecaps.nn.cell import CapsuleCell
from parsecaps.nn.couplings import record_couplings
from parsecaps.nn.heads import Bottleneck, ConceptLayer, FullyCaps
from parsecaps.nn.initial import InitialBlock
from parsecaps.nn.normalisation import CapsuleBatchNorm
from parsecaps.nn.primary import PrimaryCaps

_STAGES = (InitialBlock, PrimaryCaps, CapsuleCell, CapsuleBatchNorm, nn.LayerNorm, ConceptLayer, FullyCaps, Bottleneck)


@dataclass(frozen=True)
class RecordedStage:
    """One stage in one forward pass. `outcome` is a tuple where the stage is a head.

    `couplings` are those of a cell, by branch: "sparse" (B, heads, parents, children), "axial" (B, 1, d, d).
    """

    name: str
    module: nn.Module
    given: Tensor
    outcome: Any
    couplings: dict[str, Tensor]


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
    """
    recorded: list[RecordedStage] = []
    handles = []
    with record_couplings(model) as couplings:
        for name, module in _outermost(model):

            def note(module: nn.Module, given: tuple[Tensor], outcome: Any, name: str = name) -> None:
                own: dict[str, Tensor] = {c.branch: c.coupling for c in couplings if c.name == name}
                couplings.clear()
                recorded.append(RecordedStage(name, module, given[0], outcome, own))

            handles.append(module.register_forward_hook(note))
        try:
            yield recorded
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
