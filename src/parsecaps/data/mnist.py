"""MNIST in its original form: four gz files of the IDX format."""

import gzip
import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Part = Literal["train", "test"]
PARTS: tuple[Part, ...] = ("train", "test")
_PREFIX = {"train": "train", "test": "t10k"}


def image_file(folder: Path, part: Part) -> Path:
    """The file with the digits of a part."""
    return folder / f"{_PREFIX[part]}-images-idx3-ubyte.gz"


def label_file(folder: Path, part: Part) -> Path:
    """The file with the labels of a part."""
    return folder / f"{_PREFIX[part]}-labels-idx1-ubyte.gz"


def read_mnist(folder: str | Path, part: Part) -> tuple[Tensor, Tensor]:
    """Read digits `(N, 1, 28, 28)` in [0, 1] and their labels `(N,)`."""
    folder = Path(folder)
    images = read_idx(image_file(folder, part))
    labels = read_idx(label_file(folder, part))
    if len(images) != len(labels):
        raise ValueError(f"{folder} has {len(images)} {part} digits but {len(labels)} labels; download it again")
    return torch.from_numpy(images).unsqueeze(1).float() / 255, torch.from_numpy(labels).long()


def read_idx(path: Path) -> np.ndarray:
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
