"""A small folder in the layout of CE-MRI."""

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np


def write_cemri(root: Path, slices: Sequence[tuple[str, int, int]], *, side: int = 40, noise: int = 300) -> Path:
    """Write slices of (patient id, label from 1, fold), each with a bright tumour about row 5 and column 30."""
    root.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    for number, (patient, label, _) in enumerate(slices, 1):
        pixels, mask = random.integers(0, noise, (side, side)), np.zeros((side, side), np.uint8)
        mask[3:8, 26:36] = 1
        pixels[5, 30] = 1000 * number
        with h5py.File(root / f"{number}.mat", "w") as file:
            data = file.create_group("cjdata")
            data["image"], data["tumorMask"] = pixels.T.astype(np.int16), mask.T  # stored transposed
            data["label"] = np.array([[float(label)]])
            data["PID"] = np.array([[ord(c)] for c in patient], np.uint16)
    with h5py.File(root / "cvind.mat", "w") as file:
        file["cvind"] = np.array([[float(fold) for *_, fold in slices]])
    return root
