"""MNIST from IDX files."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

from parsecaps.data.mnist import read_mnist


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def test_reads_digits_and_labels(tmp_path: Path) -> None:
    pixels = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", pixels)
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([7, 2]))
    image, label = read_mnist(tmp_path, "test")
    assert image.shape == (2, 1, 28, 28)
    torch.testing.assert_close(image[:, 0] * 255, torch.from_numpy(pixels).float())
    assert label.tolist() == [7, 2]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"ubyte\.gz is missing; give the folder"):
        read_mnist(tmp_path, "train")
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    with pytest.raises(ValueError, match="is not an IDX file of bytes; download it again"):
        read_mnist(tmp_path, "train")


def test_the_real_files(data_root: Path) -> None:
    image, label = read_mnist(data_root / "mnist", "test")
    assert image.shape == (10_000, 1, 28, 28)
    assert torch.bincount(label).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
