"""Traversals of one image as strips of pictures: what the decoder draws as a number of the global capsule moves."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.explain.traversal import traverse, usual_ranges
from parsecaps.report.pictures import picture_of, png_file

STEPS = 7
_SIDE = 96  # pixels of a picture in a strip, at most
_GAP = 4


@dataclass(frozen=True, eq=False)
class TraversalStrip:
    """One number of the global capsule: what it is, what it is set to from left to right, and the pictures as a PNG.

    The first picture, before the `values`, is for the global capsule as it is.
    """

    name: str
    value: float
    values: tuple[float, ...]
    png: bytes

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
            _strip([found.picture, *found.pictures[j]]),
        )
        for j in capsule.argsort(descending=True, stable=True)[:count].tolist()
    )


def _strip(pictures: Sequence[Tensor]) -> bytes:
    """Pictures (C, H, W) beside each other, in columns of the same width."""
    from PIL import Image

    drawn = [picture_of(each) for each in pictures]
    side = min(_SIDE, drawn[0].width)
    strip = Image.new("RGB", (len(drawn) * (side + _GAP), side), "white")
    for i, each in enumerate(drawn):
        strip.paste(each.resize((side, side), Image.Resampling.BILINEAR), (i * (side + _GAP) + _GAP // 2, 0))
    return png_file(strip)
