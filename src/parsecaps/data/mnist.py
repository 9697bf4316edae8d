"""MNIST in its original form: four gz files of the IDX format."""

import gzip
import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

_PREFIX = {"train": "train", "test": "t10k"}


def read_mnist(folder: str | Path, part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    """Read digits `(N, 1, 28, 28)` in [0, 1] and their labels `(N,)`."""
    folder = Path(folder)
    images = _read_idx(folder / f"{_PREFIX[part]}-images-idx3-ubyte.gz")
    labels = _read_idx(folder / f"{_PREFIX[part]}-labels-idx1-ubyte.gz")
    if len(images) != len(labels):
        raise ValueError(f"{folder} has {len(images)} {part} digits but {len(labels)} labels; download it again")
    return torch.from_numpy(images).unsqueeze(1).float() / 255, torch.from_numpy(labels).long()


def _read_idx(path: Path) -> np.ndarray:
    """An IDX file: two zero bytes, the type (8: unsigned bytes), the number of axes, the sizes, the values."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give the folder with the four original gz files of MNIST")
    broken = ValueError(f"{path} is not an IDX file of bytes; download it again")
    try:
        with gzip.open(path) as file:
            raw = file.read()
    except (EOFError, OSError):
        raise broken from None
    if raw[:3] != b"\x00\x00\x08":
        raise broken
    header = 4 + 4 * raw[3]
    shape = [int.from_bytes(raw[i : i + 4], "big") for i in range(4, header, 4)]
    if len(raw) != header + math.prod(shape):
        raise broken
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape).copy()
