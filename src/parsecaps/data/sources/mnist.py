"""MNIST in its four original files, with its own training and test part."""

import gzip
from pathlib import Path

from parsecaps.data.cases import Case, DataSet
from parsecaps.data.mnist import PARTS, Part, image_file, label_file, read_idx
from parsecaps.data.sources.source import Source

CLASSES = tuple(map(str, range(10)))


def recognise(path: Path) -> bool:
    """Whether the digits of a part are there."""
    return any(image_file(path, part).is_file() for part in PARTS)


def read(path: str) -> DataSet:
    """List the digits, each a frame of its file."""
    root = Path(path)
    here = [part for part in PARTS if image_file(root, part).is_file()]
    if not here:
        raise FileNotFoundError(f"{root} has no {image_file(root, 'train').name}; give the folder with the gz files")
    cases: list[Case] = []
    for part in here:
        file = image_file(root, part)
        labels = read_labels(root, part)
        cases += [Case(file, label, f"{part}-{index}", frame=index, split=part) for index, label in enumerate(labels)]
    notes = ["MNIST does not name its writers: each digit counts as its own"]
    notes += [
        f"{image_file(root, part).name} is not here: there are no {part} cases" for part in PARTS if part not in here
    ]
    return DataSet("mnist", root, CLASSES, (), cases, (), notes, look_alikes=True)


def read_labels(root: Path, part: Part) -> list[int]:
    """The labels of a part, checked against the number of its digits."""
    labels: list[int] = read_idx(label_file(root, part)).tolist()
    if odd := [label for label in labels if label > 9]:
        raise ValueError(f"{label_file(root, part)} has label {odd[0]}; only 0 to 9 are digits, download it again")
    count = _count(image_file(root, part))
    if count != len(labels):
        raise ValueError(f"{root} has {count} {part} digits but {len(labels)} labels; download it again")
    return labels


def _count(path: Path) -> int:
    """The number of digits of an IDX file, from its first bytes."""
    try:
        with gzip.open(path) as file:
            header = file.read(8)
    except (EOFError, OSError):
        header = b""
    if len(header) < 8 or header[:4] != b"\x00\x00\x08\x03":
        raise ValueError(f"{path} is not an IDX file of images; download it again")
    return int.from_bytes(header[4:], "big")


SOURCE = Source(
    name="mnist",
    summary="MNIST digits",
    layout="a folder with train-images-idx3-ubyte.gz, t10k-images-idx3-ubyte.gz and their labels",
    recognise=recognise,
    read=read,
)
