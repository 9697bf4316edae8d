"""Files that hold pixels among other things: CE-MRI's MATLAB 7.3, MNIST's IDX and affNIST's MATLAB 5.

The last two hold thousands of images in one file. They are decoded as a whole and kept, the last two files of each
kind, so that the next image costs next to nothing.
"""

import gzip
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.cemri_format import base_patient, slice_patient_id
from parsecaps.data.raw_image import DefectError, RawImage, Version, check_bytes, check_size, pick_frame, version

_EIGHT_BIT = (0.0, 255.0)
_IDX_HEADER = 16
_AFFNIST_SIDE = 40
_MATLAB_HEADER = 128
_MATLAB_COMPRESSED = 15


def read_cemri(path: Path, frame: int | None) -> RawImage:
    """The slice of a CE-MRI file."""
    pick_frame(frame, 1)
    return RawImage(_cemri_array(path, "image"), None)


def read_cemri_mask(path: Path) -> NDArray[Any]:
    """The tumour of a CE-MRI file."""
    return _cemri_array(path, "tumorMask")


def cemri_size(path: Path) -> tuple[int, int]:
    """Height and width of a CE-MRI slice."""
    import h5py

    with h5py.File(path) as file:
        width, height = _cemri_dataset(file, "image").shape
    return height, width


def cemri_patient(path: Path) -> str:
    """The patient of a CE-MRI slice, those whose ids differ only in a letter being one."""
    import h5py

    with h5py.File(path) as file:
        return base_patient(slice_patient_id(file)) if "cjdata/PID" in file else ""


def _cemri_array(path: Path, name: str) -> NDArray[Any]:
    import h5py

    with h5py.File(path) as file:
        return np.asarray(_cemri_dataset(file, name)).T  # stored transposed


def _cemri_dataset(file: Any, name: str) -> Any:
    import h5py

    dataset = file.get(f"cjdata/{name}")
    if not isinstance(dataset, h5py.Dataset):
        raise DefectError(f"has no cjdata/{name}; of the HDF5 files only those of CE-MRI are known")
    if dataset.ndim != 2 or dataset.dtype.kind not in "iuf":
        raise DefectError(
            f"has a cjdata/{name} of {dataset.ndim} axes and type {dataset.dtype}; give 2 axes of numbers"
        )
    check_size(dataset.shape[1], dataset.shape[0])
    return dataset


def read_idx(path: Path, frame: int | None) -> RawImage:
    """One image of an IDX file such as `train-images-idx3-ubyte.gz`."""
    images = _idx_images(version(path))
    return RawImage(images[pick_frame(frame, len(images))].copy(), _EIGHT_BIT)


def count_idx(path: Path) -> int:
    """The number of images of an IDX file, from its header."""
    return _idx_shape(path)[0]


def idx_size(path: Path) -> tuple[int, int]:
    """Height and width of the images of an IDX file, from its header."""
    return _idx_shape(path)[1:]


def _open_idx(path: Path) -> Any:
    with path.open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if packed else path.open("rb")


def _idx_shape(path: Path) -> tuple[int, int, int]:
    """Two zero bytes, the type (8: unsigned bytes), the number of axes (3), then the three lengths."""
    with _open_idx(path) as file:
        header = file.read(_IDX_HEADER)
    if len(header) < _IDX_HEADER:
        raise DefectError("ends within its header; download it again")
    count, height, width = np.frombuffer(header, ">u4", offset=4).tolist()
    check_size(height, width)
    check_bytes(count * height * width)
    return count, height, width


@lru_cache(maxsize=2)
def _idx_images(file: Version) -> NDArray[np.uint8]:
    shape = _idx_shape(file.path)
    expected = shape[0] * shape[1] * shape[2]
    with _open_idx(file.path) as opened:
        raw = opened.read(_IDX_HEADER + expected + 1)[_IDX_HEADER:]
    if len(raw) != expected:
        found = "ends early" if len(raw) < expected else "has more"
        raise DefectError(f"should hold {expected} pixels but {found}; download it again")
    return np.frombuffer(raw, np.uint8).reshape(shape)


def read_affnist(path: Path, frame: int | None) -> RawImage:
    """One digit of an affNIST file."""
    images = _affnist_images(version(path))
    return RawImage(images[pick_frame(frame, len(images))].copy(), _EIGHT_BIT)


def count_affnist(path: Path) -> int:
    """The number of digits of an affNIST file; the format gives it only with the pixels."""
    return len(_affnist_images(version(path)))


def affnist_size(path: Path) -> tuple[int, int]:
    """Height and width of an affNIST digit."""
    return _affnist_images(version(path)).shape[1:]


@lru_cache(maxsize=2)
def _affnist_images(file: Version) -> NDArray[np.uint8]:
    """(N, 40, 40) of `affNISTdata.image` (1600, N), whose columns are digits stored row by row."""
    from scipy.io import loadmat

    _check_unpacked(file)
    data = loadmat(file.path, variable_names=["affNISTdata"]).get("affNISTdata")
    if data is None or "image" not in (data.dtype.names or ()) or data.size != 1:
        raise DefectError("has no affNISTdata.image; of the MATLAB 5 files only those of affNIST are known")
    image = data["image"].item()
    if image.dtype != np.uint8 or image.ndim != 2 or len(image) != _AFFNIST_SIDE**2:
        raise DefectError(
            f"has an affNISTdata.image of {image.dtype} {image.shape}; give uint8 ({_AFFNIST_SIDE**2}, N)"
        )
    return np.ascontiguousarray(image.T).reshape(-1, _AFFNIST_SIDE, _AFFNIST_SIDE)


def _check_unpacked(file: Version) -> None:
    """Refuse a file whose compressed variables say that they unpack to too much."""
    position = _MATLAB_HEADER
    with file.path.open("rb") as opened:
        little = opened.read(_MATLAB_HEADER)[126:128] == b"IM"
        while position + 8 <= file.num_bytes:
            opened.seek(position)
            kind, length = np.frombuffer(opened.read(8), "<u4" if little else ">u4").tolist()
            if kind == _MATLAB_COMPRESSED:
                inner = zlib.decompressobj().decompress(opened.read(64), 8)
                check_bytes(int.from_bytes(inner[4:8], "little" if little else "big"))
            position += 8 + length
