"""Where things truly are, for the cases of a data set, as the model sees its images."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from parsecaps.data.cache import prepared_masks
from parsecaps.data.cases import DataSet
from parsecaps.prediction.bundle import Bundle

Masks = Callable[[Sequence[int]], np.ndarray]


@dataclass(frozen=True)
class CaseMasks:
    """Masks of what maps should find, None where the data have none; an empty mask is of a case without.

    `concepts`: indices of cases to (n, concepts of the model, size, size) bool. `lesion`: to (n, size, size) bool, what
    the diagnosis is about. `known` says in a few words what the masks of the concepts are.
    """

    concepts: Masks | None = None
    lesion: Masks | None = None
    known: str = ""


def find_masks(data: DataSet, bundle: Bundle) -> CaseMasks:
    """The masks that a data set has for a model.

    Where it is drawn, the pixels of each concept. Where a lesion or tumour is outlined, that is where the reasons for
    the diagnosis should be, and each concept that the case is known to have.
    """
    size = bundle.preparation.size
    place = {name: j for j, name in enumerate(data.concepts)}
    columns = [place.get(name) for name in bundle.concepts]
    drawn = data.concept_masks
    named = any(column is not None for column in columns)

    def of_concepts(rows: Sequence[int]) -> np.ndarray:
        assert drawn is not None
        return _pick(drawn(rows, size), columns)

    def lesion(rows: Sequence[int]) -> np.ndarray:
        return np.asarray(prepared_masks(data, bundle.preparation, rows) >= 0.5)

    def within_lesion(rows: Sequence[int]) -> np.ndarray:
        has = np.array([[value == 1 for value in data.cases[row].concepts] for row in rows], dtype=bool)
        return np.asarray(lesion(rows)[:, None] & _pick(has[..., None, None], columns))

    if drawn is not None:
        return CaseMasks(of_concepts if named else None, known="the pixels of each concept")
    if any(case.mask is not None for case in data.cases):
        return CaseMasks(within_lesion if named else None, lesion, known="the whole lesion, for each concept it has")
    return CaseMasks()


def _pick(masks: np.ndarray, columns: Sequence[int | None]) -> np.ndarray:
    """Put the concepts of the data into the order of the model; those that the data lack have nothing to find."""
    none = np.zeros_like(masks[:, :1])
    picked = [none if column is None else masks[:, column : column + 1] for column in columns]
    return np.concatenate(picked, axis=1)
