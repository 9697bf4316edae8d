"""The readable cases of one part of a data set, with their prepared images."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np

from parsecaps.data.batches import Batches
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import Case, DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import read_mask

MASK_SIDE = 28  # places along a side of a mask to train with, twice as many as the largest map of concepts has
_FINER = 4  # times as many pixels, where masks are drawn
_DRAWN = 64  # cases drawn at a time


class CaseSet:
    """Readable cases of a data set, by their `rows` there, or all; a position counts within the set.

    Shapes:
        - labels: (n,) int64, -1 where unknown; concepts: (n, concepts of the data) float64, NaN where unknown
        - images: (n, channels, size, size) uint8, read when asked for: of a large set, take a `subset` first
    """

    def __init__(self, data: DataSet, prepared: PreparedImages, rows: Sequence[int] | None = None) -> None:
        wanted = range(len(data)) if rows is None else rows
        self.data, self.prepared = data, prepared
        self.rows = [int(row) for row in wanted if prepared.sizes[row] != (0, 0)]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Case]:
        return (self.data.cases[row] for row in self.rows)

    @property
    def labels(self) -> np.ndarray:
        """The class of each case, as an index into the classes of the data set."""
        return np.array([case.label for case in self], dtype=np.int64)

    @property
    def concepts(self) -> np.ndarray:
        """The concepts of each case, in the order of the data set."""
        return self.concepts_named(self.data.concepts)

    def concepts_named(self, names: Sequence[str]) -> np.ndarray:
        """The same for these names, (n, names); unknown where the data set has no such concept."""
        place = {name: j for j, name in enumerate(self.data.concepts)}
        own = [[case.concepts[place[name]] if name in place else np.nan for name in names] for case in self]
        return np.array(own, dtype=np.float64).reshape(len(self), len(names))

    @property
    def patients(self) -> list[str]:
        """The patient of each case."""
        return [case.patient for case in self]

    @property
    def names(self) -> list[str]:
        """The image of each case below the root of the data set, and the frame where a file has several."""
        names = ((self.data.name_of(case), case.frame) for case in self)
        return [name if frame is None else f"{name}#{frame}" for name, frame in names]

    @property
    def images(self) -> np.ndarray:
        """The prepared image of each case."""
        return np.array(self.prepared.images[self.rows])

    def subset(self, positions: Sequence[int] | np.ndarray) -> Self:
        """The cases at these positions, in this order."""
        return type(self)(self.data, self.prepared, [self.rows[i] for i in positions])

    def spread(self, most: int) -> Self:
        """At most so many cases, spread over all."""
        return self.subset(np.linspace(0, len(self) - 1, min(most, len(self))).round().astype(int))

    def batches(self, batch_size: int = 64) -> Batches:
        """The cases in their order as batches of images in [0, 1]."""
        return Batches(self, batch_size=batch_size)


def prepared_masks(data: DataSet, preparation: Preparation, rows: Sequence[int]) -> np.ndarray:
    """How much of each pixel of these cases the mask covers: (n, size, size), float32; zeros where a case has none."""
    masks = np.zeros((len(rows), preparation.size, preparation.size), np.float32)
    for i, row in enumerate(rows):
        case = data.cases[row]
        if case.mask is not None:
            masks[i] = preparation.prepare_mask(read_mask(case.mask, case.frame)).numpy()
    return masks


def lesion_masks(data: DataSet, preparation: Preparation, rows: Sequence[int]) -> np.ndarray:
    """How much of each place the lesion covers, 255 being all: (cases, 28, 28) uint8, zeros but for these rows."""
    small, masks = replace(preparation, size=MASK_SIDE), np.zeros((len(data), MASK_SIDE, MASK_SIDE), np.uint8)
    for start in range(0, len(rows), _DRAWN):
        some = list(rows[start : start + _DRAWN])
        if data.concept_masks is None:
            covered = prepared_masks(data, small, some)
        else:
            drawn = np.asarray(data.concept_masks(some, _FINER * MASK_SIDE).any(1))  # of a lesion, all concepts
            covered = np.stack([small.prepare_mask(each).numpy() for each in drawn])
        masks[some] = (covered * 255).round()
    return masks
