"""Outlined lesions of a data set, as a model sees its images."""

from collections.abc import Sequence

import numpy as np

from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import read_mask


def prepared_masks(data: DataSet, preparation: Preparation, rows: Sequence[int]) -> np.ndarray:
    """How much of each pixel of these cases the mask covers: (n, size, size), float32; zeros where a case has none."""
    masks = np.zeros((len(rows), preparation.size, preparation.size), np.float32)
    for i, row in enumerate(rows):
        case = data.cases[row]
        if case.mask is not None:
            masks[i] = preparation.prepare_mask(read_mask(case.mask, case.frame)).numpy()
    return masks
