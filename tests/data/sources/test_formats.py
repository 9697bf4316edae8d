"""CE-MRI, IDX and affNIST: the layout of each, and many images of one file in little time."""

import gzip
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.typing import NDArray

from parsecaps.data.reading import decode_image, image_size, look_into, read_image, read_mask
from parsecaps.data.sources.mnist import image_file, read_idx, read_labels
from tests.data.image_files import grey, write_affnist, write_cemri, write_idx
from tests.messages import refused


def digits(count: int, side: int) -> NDArray[np.uint8]:
    return np.stack([np.roll(grey(side, side), number, axis=0) for number in range(count)])


def test_cemri_is_stored_transposed(tmp_path: Path) -> None:
    image = grey(levels=4096).astype(np.int16) - 20
    path = write_cemri(tmp_path / "1.mat", image, grey() > 200)
    raw = read_image(path)
    assert np.array_equal(raw.pixels, image)
    assert raw.full_range is None
    assert np.array_equal(read_mask(path), grey() > 200)
    assert image_size(path) == (12, 20)
    assert look_into(path).frames == 1
    with refused(ValueError):
        read_image(path, 1)


def test_cemri_with_the_header_that_matlab_writes(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "1.mat", "w", userblock_size=512) as file:
        file["cjdata/image"] = grey().T
    with (tmp_path / "1.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: PCWIN64".ljust(512))
    assert np.array_equal(read_image(tmp_path / "1.mat").pixels, grey())
    with refused(ValueError):
        read_mask(tmp_path / "1.mat")


@pytest.mark.parametrize("packed", [True, False])
def test_idx(tmp_path: Path, packed: bool) -> None:
    images = digits(5, 28)
    path = write_idx(tmp_path / "train-images-idx3-ubyte.gz", images)
    if not packed:
        path.write_bytes(gzip.decompress(path.read_bytes()))
    assert look_into(path).frames == 5
    assert image_size(path) == (28, 28)
    for number in range(5):
        raw = read_image(path, number)
        assert np.array_equal(raw.pixels, images[number])
    assert raw.full_range == (0, 255)
    with refused(ValueError):
        read_image(path)


@pytest.mark.parametrize("compressed", [True, False])
def test_affnist_digits_are_upright(tmp_path: Path, compressed: bool) -> None:
    images = digits(7, 40)
    path = write_affnist(tmp_path / "1.mat", images, compressed=compressed)
    assert look_into(path).frames == 7
    assert image_size(path) == (40, 40)
    for number in range(7):
        assert np.array_equal(read_image(path, number).pixels, images[number])


def test_frames_of_one_file_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = digits(9, 28)
    path = write_idx(tmp_path / "many-images-idx3-ubyte.gz", images)
    decode_image(path, 0)
    opened: list[Path] = []
    monkeypatch.setattr(gzip, "open", opened.append)
    assert all(np.array_equal(decode_image(path, number).pixels, images[number]) for number in range(9))
    assert opened == []


@pytest.mark.parametrize("change", [-10, 10])
def test_idx_of_the_wrong_length(tmp_path: Path, change: int) -> None:
    path = write_idx(tmp_path / "images-idx3-ubyte.gz", digits(2, 28))
    raw = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(raw[:change] if change < 0 else raw + bytes(change)))
    with refused(ValueError):
        read_image(path, 0)


def test_containers_that_unpack_to_too_much(tmp_path: Path) -> None:
    header = b"\x00\x00\x08\x03" + struct.pack(">3I", 2_000_000, 40, 40)
    (tmp_path / "images-idx3-ubyte.gz").write_bytes(gzip.compress(header))
    with refused(ValueError):
        read_image(tmp_path / "images-idx3-ubyte.gz", 0)
    element = zlib.compress(struct.pack("<2I", 14, 3_000_000_000) + bytes(100_000))
    mat = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + struct.pack("<2I", 15, len(element)) + element
    (tmp_path / "1.mat").write_bytes(mat)
    with refused(ValueError):
        read_image(tmp_path / "1.mat", 0)


def test_other_matlab_files(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "cvind.mat", "w") as file:
        file["cvind"] = np.ones((1, 3))
    with refused(ValueError):
        read_image(tmp_path / "cvind.mat")
    scipy.io.savemat(tmp_path / "other.mat", {"affNISTdata": {"image": np.zeros((784, 3), np.uint8)}})
    with refused(ValueError):
        read_image(tmp_path / "other.mat", 0)
    scipy.io.savemat(tmp_path / "third.mat", {"x": 1})
    with refused(ValueError):
        look_into(tmp_path / "third.mat")


def test_the_real_mnist(data_root: Path) -> None:
    images = read_idx(image_file(data_root / "mnist", "test"))
    path = data_root / "mnist" / "t10k-images-idx3-ubyte.gz"
    assert look_into(path).frames == 10_000
    for number in (0, 1234, 9999):
        assert np.array_equal(read_image(path, number).pixels, images[number])


def write_values(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes()))


def test_reads_digits_and_labels(tmp_path: Path) -> None:
    pixels = np.arange(2 * 28 * 28).reshape(2, 28, 28) % 256
    write_values(tmp_path / "t10k-images-idx3-ubyte.gz", pixels)
    write_values(tmp_path / "t10k-labels-idx1-ubyte.gz", np.array([7, 2]))
    assert np.array_equal(read_idx(image_file(tmp_path, "test")), pixels)
    assert read_labels(tmp_path, "test") == [7, 2]


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with refused(FileNotFoundError):
        read_idx(image_file(tmp_path, "train"))
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(b"something else"))
    with refused(ValueError):
        read_idx(image_file(tmp_path, "train"))


def test_the_real_digits_and_labels(data_root: Path) -> None:
    root = data_root / "mnist"
    assert read_idx(image_file(root, "test")).shape == (10_000, 28, 28)
    assert np.bincount(read_labels(root, "test")).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
