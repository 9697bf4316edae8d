"""CE-MRI brain tumours (Cheng, figshare 1512427): MATLAB 7.3 files, three classes, 233 patients."""

import re
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

CLASSES = ("meningioma", "glioma", "pituitary")
FOLD_FILE = "cvind.mat"
_SUFFIXED = re.compile(r"^(MR\d+)[A-Z]$")


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


def base_patient(patient_id: str) -> str:
    """The patient behind an id: some have several, told apart by a letter.

    >>> base_patient("MR040240B"), base_patient("100360")
    ('MR040240', '100360')
    """
    match = _SUFFIXED.match(patient_id)
    return match.group(1) if match else patient_id


def read_slices(folder: str | Path, size: int) -> Slices:
    """Read every slice of a folder, scaled by its own range (up to the 99.5th percentile) and resized to `size`."""
    folder = Path(folder)
    fold_file = folder / FOLD_FILE
    if not fold_file.is_file():
        raise FileNotFoundError(f"{fold_file} is missing; give the folder with the .mat slices and {FOLD_FILE}")
    with _open(fold_file) as file:
        folds = np.asarray(file["cvind"]).ravel().astype(np.int64)
    paths = sorted((p for p in folder.glob("*.mat") if p.stem.isdigit()), key=lambda p: int(p.stem))
    if not paths:
        raise FileNotFoundError(f"{folder} has no slices; give the folder with 1.mat, 2.mat, ...")
    images, labels, patients = [], [], []
    for path in paths:
        with _open(path) as file:
            data = file["cjdata"]
            pixels = np.asarray(data["image"]).T.astype(np.float32)  # stored transposed
            label = int(np.asarray(data["label"]).item())
            if not 1 <= label <= len(CLASSES):
                raise ValueError(f"{path} has label {label}; only 1 to {len(CLASSES)} are known, remove the file")
            labels.append(label - 1)
            patients.append(base_patient("".join(map(chr, np.asarray(data["PID"]).ravel()))))
        images.append(_prepare(pixels, size))
    if int(paths[-1].stem) > len(folds):
        raise ValueError(f"{paths[-1]} is not among the {len(folds)} slices of {fold_file}; use the original names")
    fold = torch.from_numpy(folds[[int(p.stem) - 1 for p in paths]])
    return Slices(torch.stack(images), torch.tensor(labels), fold, patients)


def split_by_fold(slices: Slices, *, train: set[int], test: set[int]) -> tuple[Tensor, Tensor]:
    """Indices of the slices to train and to test on; a patient of the test folds is dropped from training.

    The author's folds put 15 patients with several ids on both sides; here a patient is on one side only.
    """
    folds = slices.fold.tolist()
    tested = {patient for patient, fold in zip(slices.patient, folds, strict=True) if fold in test}
    rows = list(enumerate(zip(slices.patient, folds, strict=True)))
    train_rows = [i for i, (patient, fold) in rows if fold in train and patient not in tested]
    test_rows = [i for i, (_, fold) in rows if fold in test]
    if not train_rows or not test_rows:
        raise ValueError(f"folds {sorted(train)} and {sorted(test)} are not both here; found {sorted(set(folds))}")
    return torch.tensor(train_rows), torch.tensor(test_rows)


def _open(path: Path) -> h5py.File:
    try:
        return h5py.File(path)
    except OSError:
        raise ValueError(f"{path} is not a MATLAB 7.3 file; download it again") from None


def _prepare(pixels: np.ndarray, size: int) -> Tensor:
    low, high = float(pixels.min()), float(np.percentile(pixels, 99.5))
    scaled = torch.from_numpy((pixels - low) / max(high - low, 1.0)).clamp(0, 1)
    resized = F.interpolate(scaled[None, None], (size, size), mode="bilinear", antialias=True, align_corners=False)
    return resized[0]
