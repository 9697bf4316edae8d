"""affNIST in its original MATLAB files: MNIST digits under small affine changes, 40 x 40."""

import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.cases import Case, DataSet, Problem, Source, Split
from parsecaps.data.raw_image import EIGHT_BIT, DefectError, Format, RawImage, Version, check_bytes, pick_frame, version
from parsecaps.data.reader_pool import RefusedError, call

CLASSES = tuple(map(str, range(10)))
SIDE = 40
_PARTS: dict[str, Split] = {
    "training": "train",
    "training_and_validation": "train",
    "validation": "val",
    "test": "test",
}
_MAGIC = b"MATLAB 5.0 MAT-file"  # CE-MRI's files say 7.3
_HEADER_BYTES = 128
_COMPRESSED = 15
_UNKNOWN = "the file has no affNISTdata with image and label_int; download it again"


def recognise(path: Path) -> bool:
    """Whether the path is a MATLAB 5 file or a folder of them."""
    files = _files(path)
    if not files:
        return False
    with files[0].open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read(path: str) -> DataSet:
    """List the digits of a file, or of the files of a folder, each a frame of its file."""
    root = Path(path)
    files = _files(root)
    if not files:
        raise FileNotFoundError(
            f"{root} is no .mat file and holds none; give a file or the folder with 1.mat, 2.mat, ..."
        )
    cases, problems = [], []
    for file in files:
        try:
            labels = call(read_labels, file)
        except RefusedError as refused:
            problems.append(Problem(str(file), None, _UNKNOWN if refused.damaged else str(refused)))
            continue
        split = _split(file)
        cases += [
            Case(file, label, f"{split or 'digit'}-{index}", frame=index, split=split)
            for index, label in enumerate(labels)
        ]
    note = "digits of the same number in several files are changed versions of one MNIST digit and count as one patient"
    return DataSet("affnist", root, CLASSES, (), cases, problems, [note], look_alikes=True)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".mat" else []
    files = [file for file in path.glob("*.mat") if file.is_file()]
    return sorted(files, key=lambda file: (len(file.stem), file.stem))  # 2.mat before 10.mat


def _split(file: Path) -> Split | None:
    """The part of MNIST that the digits come from, by the original names of files and folders."""
    names = (file.stem, file.parent.name.removesuffix("_batches"))
    return next((_PARTS[name] for name in names if name in _PARTS), None)


def read_labels(path: Path) -> list[int]:
    """The digit of each image, checked against the number of images."""
    data = _variable(version(path))
    if data is None or not {"image", "label_int"} <= set(data.dtype.names or ()) or data.size != 1:
        raise DefectError(_UNKNOWN)
    labels, image = np.asarray(data["label_int"].item()).ravel(), data["image"].item()
    if image.shape != (SIDE**2, len(labels)):
        raise DefectError(
            f"image is {image.shape} for {len(labels)} labels, not ({SIDE**2}, {len(labels)}); download it"
        )
    if not np.isin(labels, range(10)).all():
        raise DefectError("label_int is not 0 to 9 everywhere; download it again")
    return [int(label) for label in labels]


def _read_image(path: Path, frame: int | None) -> RawImage:
    images = _images(version(path))
    return RawImage(images[pick_frame(frame, len(images))].copy(), EIGHT_BIT)


@lru_cache(maxsize=2)  # a file is decoded as a whole, so that its next image costs next to nothing
def _images(file: Version) -> NDArray[np.uint8]:
    """(N, 40, 40) of `affNISTdata.image` (1600, N), whose columns are digits stored row by row."""
    data = _variable(file)
    if data is None or "image" not in (data.dtype.names or ()) or data.size != 1:
        raise DefectError("has no affNISTdata.image; of the MATLAB 5 files only those of affNIST are known")
    image = data["image"].item()
    if image.dtype != np.uint8 or image.ndim != 2 or len(image) != SIDE**2:
        raise DefectError(f"has an affNISTdata.image of {image.dtype} {image.shape}; give uint8 ({SIDE**2}, N)")
    return np.ascontiguousarray(image.T).reshape(-1, SIDE, SIDE)


def _variable(file: Version) -> Any:
    """The variable affNISTdata, None where there is none."""
    from scipy.io import loadmat

    _check_unpacked(file)
    return loadmat(file.path, variable_names=["affNISTdata"]).get("affNISTdata")


def _check_unpacked(file: Version) -> None:
    """Refuse a file whose compressed variables say that they unpack to too much."""
    position = _HEADER_BYTES
    with file.path.open("rb") as opened:
        little = opened.read(_HEADER_BYTES)[126:128] == b"IM"
        while position + 8 <= file.num_bytes:
            opened.seek(position)
            kind, length = np.frombuffer(opened.read(8), "<u4" if little else ">u4").tolist()
            if kind == _COMPRESSED:
                inner = zlib.decompressobj().decompress(opened.read(64), 8)
                check_bytes(int.from_bytes(inner[4:8], "little" if little else "big"))
            position += 8 + length


FORMAT = Format(
    name="affNIST .mat",
    suffixes=(".mat",),
    recognise=lambda head: head.startswith(_MAGIC),
    read=_read_image,
    count=lambda path: len(_images(version(path))),  # the format gives it only with the pixels
    size=lambda path: _images(version(path)).shape[1:],
)
SOURCE = Source(
    name="affnist",
    summary="affNIST digits, original MATLAB files",
    layout="a .mat file with affNISTdata, or a folder of them such as test_batches",
    recognise=recognise,
    read=read,
)
