"""What each number of the global capsule means to the decoder: its picture while one of them moves (Sec. 3.3.2).

The others keep their proportions, so that all sum to 1. Only a trained decoder has pictures to show; where no image
asked for a reconstruction, the saved count of its batch normalisation is 0.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.nn.heads import Decoder

_USUAL = (0.01, 0.99)  # the share of training cases below the ends of a usual range
STEPS = 7


@dataclass(frozen=True, eq=False)
class Traversal:
    """Pictures for a global capsule of m numbers, each of which takes a few values in turn.

    Shapes:
        - picture: (C, H, W), for the global capsule as it is
        - values: (m, steps), what the moving number is set to
        - pictures: (m, steps, C, H, W)
    """

    picture: Tensor
    values: Tensor
    pictures: Tensor


@torch.no_grad()
def traverse(
    model: nn.Module, global_capsule: Tensor, *, steps: int = 7, ranges: np.ndarray | None = None
) -> Traversal:
    """Move each number of a global capsule through its range, else from 0 to 1, others in proportion, and decode.

    Shapes:
        - global_capsule: (m,) or (1, m), sums to 1; ranges: (m, 2)
    """
    decoder = deepcopy(trained_decoder(model)).eval()
    capsule = global_capsule.detach().reshape(-1)
    m = len(capsule)
    if m < 2:
        raise ValueError("a global capsule of one number is always 1, so nothing can move; train with more concepts")
    if steps < 2:
        raise ValueError(f"{steps} steps show no movement; give at least 2")
    ends = torch.tensor([[0.0, 1.0]] * m) if ranges is None else torch.as_tensor(ranges, dtype=torch.float32)
    if ends.shape != (m, 2) or not ((ends >= 0) & (ends <= 1)).all():
        raise ValueError(f"ranges are {tuple(ends.shape)}; give ({m}, 2) numbers from 0 to 1")
    share = torch.linspace(0, 1, steps)
    values = (ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * share).to(capsule)
    picture = decoder(capsule.view(1, 1, m))[0]
    pictures = [decoder(moved(capsule, i, values[i]).unsqueeze(1)) for i in range(m)]
    return Traversal(picture.cpu(), values.cpu(), torch.stack(pictures).cpu())


def moved(capsule: Tensor, index: int, values: Tensor) -> Tensor:
    """The global capsule with one number set to each of the values; the others share the rest as before, or equally.

    Shapes:
        - capsule: (m,); values: (steps,); output: (steps, m)

    >>> moved(torch.tensor([0.5, 0.3, 0.2]), 0, torch.tensor([0.0, 0.5]))
    tensor([[0.0000, 0.6000, 0.4000],
            [0.5000, 0.3000, 0.2000]])
    """
    free = torch.arange(len(capsule), device=capsule.device) != index
    others = capsule * free if capsule[free].sum() > 0 else free.to(capsule)
    result = (others / others.sum()) * (1 - values).unsqueeze(1)
    result[:, index] = values
    return result


def usual_ranges(memory: CaseMemory) -> np.ndarray:
    """From where to where each number of the global capsule goes in 98 of 100 training cases: (m, 2)."""
    return np.asarray(np.quantile(memory.global_capsule, _USUAL, axis=0).T)


def trained_decoder(model: nn.Module) -> Decoder:
    """The decoder of a model; refused in one line where there is none or it was never trained."""
    decoder = next((module for module in model.modules() if isinstance(module, Decoder)), None)
    if decoder is None:
        raise ValueError(f"{type(model).__name__} has no decoder; train a ParseCaps with model.num_concepts above 0")
    batches = [module.num_batches_tracked for module in decoder.modules() if isinstance(module, nn.BatchNorm2d)]
    if not any(int(count) for count in batches if count is not None):
        why = "the decoder was never trained: all training images have concepts, so none was reconstructed"
        raise ValueError(f"{why}; train on images without concepts to see what the decoder draws")
    return decoder


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
        listed = ", ".join(f"{value:.2f}" for value in self.values)
        return f"The decoder's picture with {self.name} as it is ({self.value:.2f}), then set to {listed}"


def traversal_strips(
    model: nn.Module, global_capsule: Tensor, names: Sequence[str], count: int, memory: CaseMemory | None = None
) -> tuple[TraversalStrip, ...]:
    """The `count` most active numbers of a global capsule, moved through the ranges that the `memory` knows."""
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
