"""CE-MRI brain tumours (Cheng, figshare 1512427): MATLAB 7.3 files, three classes, 233 patients."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.data.sources.cemri import (
    CLASSES,
    FOLD_FILE,
    base_patient,
    open_mat,
    read_folds,
    slice_files,
    slice_label,
    slice_patient_id,
)

__all__ = ["CLASSES", "Slices", "base_patient", "read_outlines", "read_slices", "split_by_fold"]

_MARGIN = 1.6  # the side of a square around a tumour, as a multiple of the longer side of the tumour itself
_SMALLEST_SQUARE = 0.2  # of the width of the slice


class Slices(NamedTuple):
    """Slices of a folder, in the order of their file numbers.

    Shapes:
        - image: (N, 1, size, size) in [0, 1]
        - label: (N,) int64, an index into `CLASSES`
        - fold: (N,) int64, the author's fold from 1 to 5
        - patient: N patients, those whose ids differ only in a letter being one
    """

    image: Tensor
    label: Tensor
    fold: Tensor
    patient: list[str]


def read_slices(folder: str | Path, size: int, *, around_tumour: bool = False) -> Slices:
    """Read every slice of a folder, scaled by its own range (up to the 99.5th percentile) and resized to `size`.

    With `around_tumour`, only a square around the tumour is shown. It takes the true mask to find it, so this is for
    measuring what a network could do that knows where to look, not for a model.
    """
    folder = Path(folder)
    folds = read_folds(folder)
    paths = slice_files(folder)
    images, labels, patients = [], [], []
    for path in paths:
        with open_mat(path) as file:
            pixels = np.asarray(file["cjdata"]["image"]).T.astype(np.float32)  # stored transposed
            labels.append(slice_label(file, path))
            patients.append(base_patient(slice_patient_id(file)))
            square = _square(np.asarray(file["cjdata"]["tumorMask"]).T > 0) if around_tumour else None
        images.append(_prepare(pixels, size, square))
    if int(paths[-1].stem) > len(folds):
        place = folder / FOLD_FILE
        raise ValueError(f"{paths[-1]} is not among the {len(folds)} slices of {place}; use the original names")
    fold = torch.from_numpy(folds[[int(p.stem) - 1 for p in paths]])
    return Slices(torch.stack(images), torch.tensor(labels), fold, patients)


def read_outlines(folder: str | Path, size: int) -> Tensor:
    """The tumours of every slice of a folder, in the order of `read_slices`: (N, size, size) bool."""
    outlines = []
    for path in slice_files(Path(folder)):
        with open_mat(path) as file:
            mask = torch.from_numpy(np.asarray(file["cjdata"]["tumorMask"]).T.astype(np.float32))
        resized = F.interpolate(mask[None, None], (size, size), mode="bilinear", antialias=True, align_corners=False)
        outlines.append(resized[0, 0] > 0.5)
    return torch.stack(outlines)


def split_by_fold(
    slices: Slices, *, train: set[int], test: set[int], as_published: bool = False
) -> tuple[Tensor, Tensor]:
    """Indices of the slices to train and to test on; a patient of the test folds is dropped from training.

    The author's folds put 15 patients with several ids on both sides; here a patient is on one side only, unless
    `as_published` asks for the folds as they are, for comparison with figures obtained so.
    """
    folds = slices.fold.tolist()
    tested = {patient for patient, fold in zip(slices.patient, folds, strict=True) if fold in test}
    rows = list(enumerate(zip(slices.patient, folds, strict=True)))
    train_rows = [i for i, (patient, fold) in rows if fold in train and (as_published or patient not in tested)]
    test_rows = [i for i, (_, fold) in rows if fold in test]
    if not train_rows or not test_rows:
        raise ValueError(f"folds {sorted(train)} and {sorted(test)} are not both here; found {sorted(set(folds))}")
    return torch.tensor(train_rows), torch.tensor(test_rows)


def _square(mask: np.ndarray) -> tuple[int, int, int]:
    """Top, left and side of the square around a mask; parts of it may lie outside."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    longer = max(np.ptp(rows), np.ptp(columns)) + 1
    side = round(max(_MARGIN * longer, _SMALLEST_SQUARE * mask.shape[1]))
    top, left = (round((line[0] + line[-1] + 1 - side) / 2) for line in (rows, columns))
    return top, left, side


def _prepare(pixels: np.ndarray, size: int, square: tuple[int, int, int] | None) -> Tensor:
    low, high = float(pixels.min()), float(np.percentile(pixels, 99.5))
    scaled = torch.from_numpy((pixels - low) / max(high - low, 1.0)).clamp(0, 1)
    if square is not None:
        top, left, side = square
        scaled = F.pad(scaled, [side] * 4)[top + side : top + 2 * side, left + side : left + 2 * side]
    resized = F.interpolate(scaled[None, None], (size, size), mode="bilinear", antialias=True, align_corners=False)
    return resized[0]
