"""The cases of an audit: their images, what is to be explained in each, and where that truly is."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from parsecaps.data.case_set import CaseSet, prepared_masks
from parsecaps.data.cases import DataSet
from parsecaps.explain.attribution import Target
from parsecaps.metrics import THRESHOLD, Means, means
from parsecaps.metrics.predictions import group_numbers
from parsecaps.model import Model
from parsecaps.types import Output, ProgressCallback, silent

About = Literal["concepts", "classes"]
Masks = Callable[[Sequence[int]], np.ndarray]
Values = Callable[[Tensor], Tensor]  # images (B, channels, H, W) -> (B, columns)
Average = Callable[..., Means]  # `metrics.means` of values (N, K), with 95 % intervals over the patients of these N
M = TypeVar("M", bound=tuple[np.ndarray, ...])  # a named tuple of what was measured

_BATCH = 8  # images


@dataclass(frozen=True)
class CaseMasks:
    """Masks of what maps should find, None where the data have none; an empty mask is of a case without.

    `concepts`: indices of cases to (n, concepts of the model, size, size) bool. `lesion`: to (n, size, size) bool, what
    the diagnosis is about. `known` says what the masks of the concepts are.
    """

    concepts: Masks | None = None
    lesion: Masks | None = None
    known: str = ""

    def of(self, about: About, rows: Sequence[int]) -> np.ndarray | None:
        """Of each concept, or of the diagnosis: (n, targets, size, size) bool; None where there are none."""
        if about == "concepts":
            return None if self.concepts is None else self.concepts(rows)
        return None if self.lesion is None else self.lesion(rows)[:, None]


def find_masks(data: DataSet, model: Model) -> CaseMasks:
    """The masks that a data set has for a model: of each concept where it is drawn, else of the outlined lesion."""
    size = model.preparation.size
    place = {name: j for j, name in enumerate(data.concepts)}
    columns = [place.get(name) for name in model.concepts]
    drawn = data.concept_masks
    named = any(column is not None for column in columns)

    def of_concepts(rows: Sequence[int]) -> np.ndarray:
        assert drawn is not None
        return _pick(drawn(rows, size), columns)

    def lesion(rows: Sequence[int]) -> np.ndarray:
        return np.asarray(prepared_masks(data, model.preparation, rows) >= 0.5)

    def within_lesion(rows: Sequence[int]) -> np.ndarray:
        has = np.array([[value == 1 for value in data.cases[row].concepts] for row in rows], dtype=bool)
        return np.asarray(lesion(rows)[:, None] & _pick(has[..., None, None], columns))

    if drawn is not None:
        return CaseMasks(of_concepts if named else None, known="the pixels of each concept")
    if any(case.mask is not None for case in data.cases):
        return CaseMasks(within_lesion if named else None, lesion, known="the whole lesion, for each concept it has")
    return CaseMasks()


class AuditCases:
    """A model and its cases, in batches, with the targets to explain in each image.

    That is the diagnosis, and the concepts that the case is known to have, or that the model sees where that is not
    known. `values` gives all that a model says of images at once; `column` finds a target in it.
    """

    def __init__(self, model: Model, cases: CaseSet, *, resamples: int = 1000, seed: int = 0) -> None:
        self.model, self.cases, self.resamples, self.seed = model, cases, resamples, seed
        self.network = model.network.eval()
        self.values = model_values(self.network)
        self.group = group_numbers(cases.patients)

    def __len__(self) -> int:
        return len(self.cases)

    def first(self, count: int) -> "AuditCases":
        some = self.cases.subset(range(min(count, len(self))))
        return AuditCases(self.model, some, resamples=self.resamples, seed=self.seed)

    def average(self, positions: Sequence[int] | None = None) -> Average:
        """Means over the cases, or over pairs of which the cases at these positions are."""
        group = self.group if positions is None else self.group[positions]
        return partial(means, group=group, resamples=self.resamples, seed=self.seed)

    def batches(self, progress: ProgressCallback = silent) -> Iterator[tuple[range, Tensor]]:
        """The numbers of a few cases at a time, and their images (n, channels, size, size)."""
        progress(0, len(self))
        for start in range(0, len(self), _BATCH):
            batch = range(start, min(start + _BATCH, len(self)))
            levels = torch.from_numpy(self.cases.subset(batch).images)
            yield batch, levels.float().div(255).to(self.model.device)
            progress(batch.stop, len(self))

    def rows_of(self, batch: range) -> list[int]:
        return self.cases.subset(batch).rows

    @property
    def kinds(self) -> tuple[About, ...]:
        """What can be explained: the concepts, where there are any, and the classes."""
        return ("concepts", "classes") if self.model.concepts else ("classes",)

    def names(self, about: About) -> tuple[str, ...]:
        return self.model.concepts if about == "concepts" else self.model.classes

    def column(self, target: Target) -> int:
        """Where `values` has a target: the concepts come first, then the classes."""
        return target.index + (len(self.model.concepts) if target.about == "classes" else 0)

    def targets(self, batch: range, values: Tensor) -> list[list[Target]]:
        """What to explain in each image, by what the model says of it (n, columns): concepts, then the diagnosis."""
        count = len(self.model.concepts)
        seen, diagnosis = (values[:, :count] > THRESHOLD).cpu().numpy(), values[:, count:].argmax(1).tolist()
        truth = self.truth(batch)
        wanted = np.where(np.isnan(truth), seen, truth == 1)
        return [
            [*(Target("concepts", int(j)) for j in np.flatnonzero(has)), Target("classes", named)]
            for has, named in zip(wanted, diagnosis, strict=True)
        ]

    def truth(self, batch: range) -> np.ndarray:
        """The concepts of the model, as the data know them: (n, m), NaN = unknown."""
        return self.cases.subset(batch).concepts_named(self.model.concepts)


def joined(parts: Sequence[M], rows: Sequence[int] | slice = slice(None)) -> M:
    """The measures of all batches, one below the other, and of these some rows."""
    return type(parts[0])(*(np.concatenate(each)[rows] for each in zip(*parts, strict=True)))


def model_values(model: nn.Module) -> Values:
    """What a model says of images: the presence of each concept, then the probability of each class."""

    @torch.inference_mode()
    def values(image: Tensor) -> Tensor:
        output: Output = model(image)
        probability = output.logits.softmax(-1)
        return probability if output.presence is None else torch.cat([output.presence, probability], 1)

    return values


def _pick(masks: np.ndarray, columns: Sequence[int | None]) -> np.ndarray:
    """Put the concepts of the data into the order of the model; those that the data lack have nothing to find."""
    none = np.zeros_like(masks[:, :1])
    picked = [none if column is None else masks[:, column : column + 1] for column in columns]
    return np.concatenate(picked, axis=1)
