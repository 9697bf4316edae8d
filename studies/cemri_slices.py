"""CE-MRI brain tumours (Cheng, figshare 1512427): the author's folds by patient, and slices cropped to the tumour."""

import csv
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from parsecaps.data.cases import DataSet, Division
from parsecaps.data.reading import read_image, read_mask

PROTOCOLS: dict[str, list[tuple[set[int], set[int]]]] = {
    "select": [({1}, {2}), ({2}, {1})],
    "test": [({1, 2}, {3})],
}
_MARGIN = 1.6  # the side of a square around a tumour, as a multiple of the longer side of the tumour itself
_SMALLEST_SQUARE = 0.2  # of the width of the slice
_BRIGHTEST = 99.5  # percent of the pixels are not brighter than what becomes white


def divide_by_fold(
    data: DataSet,
    *,
    train: set[int],
    test: set[int],
    as_published: bool = False,
    share: float = 1.0,
    seed: int = 0,
) -> Division:
    """Train and test on these folds of the author; a patient of the test folds is dropped from training.

    The author's folds put 15 patients with several ids on both sides; here a patient is on one side only, unless
    `as_published` asks for the folds as they are. A `share` of the training patients is drawn from each class alike, at
    least one of each.
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share of patients is {share}; give a number above 0, up to 1")
    tested = {case.patient for case in data.cases if case.fold in test}
    rows = [i for i, c in enumerate(data.cases) if c.fold in train and (as_published or c.patient not in tested)]
    if not rows or not tested:
        found = sorted({case.fold for case in data.cases if case.fold is not None})
        raise ValueError(f"folds {sorted(train)} and {sorted(test)} are not both here; found {found}")
    generator, kept = torch.Generator().manual_seed(seed), set[str]()
    for label in range(len(data.classes)):
        patients = sorted({data.cases[row].patient for row in rows if data.cases[row].label == label})
        drawn = torch.randperm(len(patients), generator=generator)[: max(1, round(share * len(patients)))]
        kept |= {patients[i] for i in drawn.tolist()}
    division: Division = ["test" if case.fold in test else None for case in data.cases]
    for row in rows:
        if data.cases[row].patient in kept:
            division[row] = "train"
    return division


def crop_tumours(data: DataSet, folder: Path) -> Path:
    """Write a square around each tumour as a picture, with a manifest of the cases in their order; gives the manifest.

    It takes the true mask to find the tumour, so this is for measuring what a network could do that knows where to
    look, not for a model. Each slice is scaled by its own range, up to its 99.5th percentile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / "cases.csv"
    with manifest.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["image", "label", "patient"])
        for case in data.cases:
            assert case.mask is not None
            pixels, mask = read_image(case.image, case.frame).pixels.astype(float), read_mask(case.mask, case.frame)
            low, high = pixels.min(), np.percentile(pixels, _BRIGHTEST)
            levels = (255 * (pixels - low) / max(high - low, 1.0)).clip(0, 255).round().astype(np.uint8)
            top, left, side = _square(mask)
            padded = np.pad(levels, side)[top + side : top + 2 * side, left + side : left + 2 * side]
            name = f"{case.image.stem}.png"
            Image.fromarray(padded).save(folder / name)
            writer.writerow([name, data.classes[case.label], case.patient])
    return manifest


def _square(mask: np.ndarray) -> tuple[int, int, int]:
    """Top, left and side of the square around a mask; parts of it may lie outside."""
    rows, columns = (np.flatnonzero(mask.any(axis)) for axis in (1, 0))
    longer = max(np.ptp(rows), np.ptp(columns)) + 1
    side = round(max(_MARGIN * longer, _SMALLEST_SQUARE * mask.shape[1]))
    top, left = (round((line[0] + line[-1] + 1 - side) / 2) for line in (rows, columns))
    return top, left, side
