"""Masks of lesions as training wants them: of all cases, on a small grid."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from parsecaps.data.cache import prepared_masks
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation

SIDE = 28  # places along a side, twice as many as the largest map of concepts has
_FINER = 4  # times as many pixels, where masks are drawn
_CHUNK = 64  # cases drawn at a time


def has_masks(data: DataSet, rows: Sequence[int]) -> bool:
    """Whether it is known of some of these cases where the lesion is."""
    return data.concept_masks is not None or any(data.cases[row].mask is not None for row in rows)


def lesion_masks(data: DataSet, preparation: Preparation, rows: Sequence[int]) -> np.ndarray:
    """How much of each place the lesion covers, 255 being all of it: (cases, 28, 28) uint8, zeros but for these rows.

    Of images that are drawn, what counts as the lesion are the pixels of any concept.
    """
    small, masks = replace(preparation, size=SIDE), np.zeros((len(data), SIDE, SIDE), np.uint8)
    for start in range(0, len(rows), _CHUNK):
        some = list(rows[start : start + _CHUNK])
        if data.concept_masks is None:
            covered = prepared_masks(data, small, some)
        else:
            drawn = np.asarray(data.concept_masks(some, _FINER * SIDE).any(1))
            covered = np.stack([small.prepare_mask(each).numpy() for each in drawn])
        masks[some] = (covered * 255).round()
    return masks
