"""What flows between the rooms: batches, outputs, progress, and the tables and charts of results."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from torch import Tensor

ProgressCallback = Callable[[int, int], None]  # done, of how many
StageCallback = Callable[[str, int, int], None]  # a stage, how much of it is done, of how much


def silent(*_: object) -> None:
    """A callback that ignores progress."""


class Mixed(NamedTuple):
    """What a batch was mixed with: the other labels (B,), unknown in the same rows, and each image's own share."""

    label: Tensor
    share: float


class Batch(NamedTuple):
    """Images with whatever labels they have.

    Shapes:
        - image: (B, channels, size, size)
        - label: (B,) int64, -1 = unknown
        - concepts: (B, m), 1 = present, 0 = absent, NaN = unknown; None where no concepts are named
        - mask: (B, 1, h, w), how much of each place the lesion covers, from 0 to 1, on a grid of its own; zeros where
          it is not known; None where no loss asks for it

    With several `views`, the first B / views rows are repeated that many times, each time augmented anew. Where images
    were `mixed`, each with another of the batch, so are concepts; `label` is of the larger share.
    """

    image: Tensor
    label: Tensor
    concepts: Tensor | None = None
    views: int = 1
    mixed: Mixed | None = None
    mask: Tensor | None = None


class Output(NamedTuple):
    """What every model gives for a batch of images, in training and evaluation; None for parts that it does not have.

    A tuple, so that `torch.compile`, `torch.export` and data parallelism can take it.

    Shapes:
        - logits: (B, num_classes)
        - class_capsules: (B, num_classes, d_class); with `head="bottleneck"` (B, num_classes, m), each concept's
          contribution to each logit
        - concept_capsules: (B, m, d_c)
        - presence: (B, m), in [0, 1): the length of each concept capsule, or a number of its own where there is none
        - global_capsule: (B, 1, m), sums to 1 over the concepts
        - reconstruction: (B, channels, size, size), where it was asked for
        - concept_features: (B, m, ...), what a model's own losses want to know of each concept beside its presence
        - concept_weights: (B, num_classes, m), by what each logit grows with each presence, where logits are linear in
          the presences of an image with weights of its own
    """

    logits: Tensor
    class_capsules: Tensor | None = None
    concept_capsules: Tensor | None = None
    presence: Tensor | None = None
    global_capsule: Tensor | None = None
    reconstruction: Tensor | None = None
    concept_features: Tensor | None = None
    concept_weights: Tensor | None = None


class Cell(NamedTuple):
    """A number in a `Grid`, with its interval or deviation `below` and the `n` behind it, if known."""

    text: str
    below: str = ""
    n: int | None = None
    bold: bool = False


class Grid(NamedTuple):
    """A titled table of a result, which `report.draw` draws. Each row has a cell for each column.

    `left` columns are aligned left, `folded` ones may be broken into lines. `stacked` intervals stand below their
    numbers, others beside them. The last `totals` rows are set apart.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]
    left: Collection[int] = (0,)
    folded: Collection[int] = ()
    stacked: bool = True
    totals: int = 0


class LineChart(NamedTuple):
    """Lines over evenly spaced places with labels, from `low` to 1; `below` and `beside` are the titles of the axes."""

    title: str
    lines: Mapping[str, Sequence[float]]
    labels: Sequence[str]
    below: str
    beside: str
    low: float = 0.0
    dashed: Collection[str] = ()
