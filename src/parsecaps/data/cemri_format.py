"""The files of CE-MRI (Cheng, figshare 1512427): MATLAB 7.3 slices, the file of folds, and ids of patients."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import h5py

CLASSES = ("meningioma", "glioma", "pituitary")
FOLD_FILE = "cvind.mat"
_SUFFIXED = re.compile(r"^(MR\d+)[A-Z]$")


def base_patient(patient_id: str) -> str:
    """The patient behind an id: some have several, told apart by a letter.

    >>> base_patient("MR040240B"), base_patient("100360")
    ('MR040240', '100360')
    """
    match = _SUFFIXED.match(patient_id)
    return match.group(1) if match else patient_id


def open_mat(path: Path) -> "h5py.File":
    """Open a MATLAB 7.3 file for reading."""
    import h5py  # optional

    try:
        return h5py.File(path)
    except OSError:
        raise ValueError(f"{path} is not a MATLAB 7.3 file; download it again") from None


def read_folds(folder: Path) -> np.ndarray:
    """The author's fold, from 1 to 5, of slice 1, 2, ...: (3064,) int64."""
    path = folder / FOLD_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give the folder with the .mat slices and {FOLD_FILE}")
    with open_mat(path) as file:
        if "cvind" not in file:
            raise ValueError(f"{path} has no variable cvind; download it again")
        return np.asarray(file["cvind"]).ravel().astype(np.int64)


def slice_files(folder: Path) -> list[Path]:
    """The slices of a folder, in the order of their numbers."""
    paths = sorted((p for p in folder.glob("*.mat") if p.stem.isdecimal()), key=lambda p: int(p.stem))
    if not paths:
        raise FileNotFoundError(f"{folder} has no slices; give the folder with 1.mat, 2.mat, ...")
    return paths


def slice_label(file: "h5py.File", path: Path) -> int:
    """The label of an open slice, an index into `CLASSES`."""
    label = int(np.asarray(file["cjdata"]["label"]).item())
    if not 1 <= label <= len(CLASSES):
        raise ValueError(f"{path} has label {label}; only 1 to {len(CLASSES)} are known, remove the file")
    return label - 1


def slice_patient_id(file: "h5py.File") -> str:
    """The id of the patient of an open slice, as it is written there."""
    return "".join(map(chr, np.asarray(file["cjdata"]["PID"]).ravel()))
