"""Traversals of one image: what the decoder draws as a number of the global capsule moves."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.explain.traversal import traverse, usual_ranges

STEPS = 7


@dataclass(frozen=True, eq=False)
class TraversalStrip:
    """One number of the global capsule: what it is, what it is set to from left to right, and the pictures.

    Shapes:
        - pictures: (1 + steps, channels, size, size); the first is for the global capsule as it is
    """

    name: str
    value: float
    values: tuple[float, ...]
    pictures: Tensor

    def sentence(self) -> str:
        """What the strip shows, for those who do not see it."""
        listed = ", ".join(f"{value:.2f}" for value in self.values)
        return f"The decoder's picture with {self.name} as it is ({self.value:.2f}), then set to {listed}"


def traversal_strips(
    model: nn.Module, global_capsule: Tensor, names: Sequence[str], count: int, memory: CaseMemory | None = None
) -> tuple[TraversalStrip, ...]:
    """The `count` most active numbers of a global capsule (m,) or (1, m), each moved while the others share the rest.

    They move through the range of the training cases where the `memory` knows it, else from 0 to 1.
    """
    ranges = None if memory is None else usual_ranges(memory)
    found = traverse(model, global_capsule, steps=STEPS, ranges=ranges)
    capsule = global_capsule.detach().reshape(-1).cpu()
    return tuple(
        TraversalStrip(
            names[j],
            float(capsule[j]),
            tuple(found.values[j].tolist()),
            torch.cat([found.picture[None], found.pictures[j]]),
        )
        for j in capsule.argsort(descending=True, stable=True)[:count].tolist()
    )
