"""MNIST in its four original files of the IDX format, with its own training and test part."""

import math
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.cases import Case, DataSet
from parsecaps.data.raw_image import (
    DefectError,
    Format,
    LastFiles,
    check_bytes,
    check_length,
    check_size,
    image_of,
    open_unpacked,
)
from parsecaps.data.reader_pool import call_or_name

Part = Literal["train", "test"]
PARTS: tuple[Part, ...] = ("train", "test")
CLASSES = tuple(map(str, range(10)))
_PREFIX = {"train": "train", "test": "t10k"}
_DAMAGED = "is damaged; download it again"


def recognise(path: Path) -> list[Part]:
    """The parts whose digits are there."""
    return [part for part in PARTS if image_file(path, part).is_file()]


def read(path: str) -> DataSet:
    """List the digits, each a frame of its file."""
    root = Path(path)
    if not (here := recognise(root)):
        raise FileNotFoundError(f"{root} has no {image_file(root, 'train').name}; give the folder with the gz files")
    cases: list[Case] = []
    for part in here:
        file = image_file(root, part)
        labels = read_labels(root, part)
        cases += [Case(file, label, f"{part}-{index}", frame=index, split=part) for index, label in enumerate(labels)]
    notes = ["MNIST does not name its writers: each digit counts as its own"]
    gone = [part for part in PARTS if part not in here]
    notes += [f"{image_file(root, part).name} is not here: there are no {part} cases" for part in gone]
    return DataSet("mnist", root, CLASSES, (), cases, (), notes, look_alikes=True)


def image_file(folder: Path, part: Part) -> Path:
    """The file with the digits of a part."""
    return folder / f"{_PREFIX[part]}-images-idx3-ubyte.gz"


def read_labels(root: Path, part: Part) -> list[int]:
    """The labels of a part, checked against the number of its digits."""
    file = root / f"{_PREFIX[part]}-labels-idx1-ubyte.gz"
    labels: list[int] = read_idx(file).tolist()
    if odd := [label for label in labels if label > 9]:
        raise ValueError(f"{file} has label {odd[0]}; only 0 to 9 are digits, download it again")
    count = call_or_name(image_shape, image_file(root, part), _DAMAGED)[0]
    if count != len(labels):
        raise ValueError(f"{root} has {count} {part} digits but {len(labels)} labels; download it again")
    return labels


def read_idx(path: Path) -> NDArray[np.uint8]:
    """All values of an IDX file, in its shape."""
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give the folder with the four original gz files of MNIST")
    return np.asarray(call_or_name(idx_values, path, _DAMAGED))


@partial(LastFiles, most=2)  # each is decoded as a whole
def _images(path: Path) -> NDArray[np.uint8]:
    image_shape(path)
    return idx_values(path)


def image_shape(path: Path) -> tuple[int, int, int]:
    """Number, height and width of the images of a file, from its header."""
    shape = _shape(path)
    if len(shape) != 3:
        raise DefectError("is not an IDX file of images; download it again")
    count, height, width = shape
    check_size(height, width)
    return count, height, width


def _shape(path: Path) -> tuple[int, ...]:
    """Two zero bytes, the type (8: unsigned bytes), the number of axes, then their lengths."""
    with open_unpacked(path) as file:
        start = file.read(4)
        if len(start) < 4 or start[:3] != b"\0\0\x08":
            raise DefectError("is not an IDX file of bytes; download it again")
        lengths = file.read(4 * start[3])
    if len(lengths) < 4 * start[3]:
        raise DefectError("ends within its header; download it again")
    shape = tuple(np.frombuffer(lengths, ">u4").tolist())
    check_bytes(math.prod(shape))
    return shape


def idx_values(path: Path) -> NDArray[np.uint8]:
    """All values of an IDX file, in its shape."""
    shape = _shape(path)
    header, expected = 4 + 4 * len(shape), math.prod(shape)
    with open_unpacked(path) as file:
        raw = file.read(header + expected + 1)[header:]
    if len(raw) != expected:
        found = "ends early" if len(raw) < expected else "has more"
        raise DefectError(f"should hold {expected} values but {found}; download it again")
    return np.frombuffer(raw, np.uint8).reshape(shape).copy()


def _count(path: Path) -> int:
    count, height, width = image_shape(path)
    check_length(path, count * height * width, f"{count:,} images")
    return count


FORMAT = Format(
    name="IDX",
    suffixes=("ubyte", "ubyte.gz"),
    recognise=lambda head: head.startswith(b"\0\0\x08\x03"),
    read=lambda path, frame: image_of(_images(path), frame),
    count=_count,
    size=lambda path: image_shape(path)[1:],
    packed=True,
)
