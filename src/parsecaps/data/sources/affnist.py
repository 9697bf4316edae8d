"""affNIST: MNIST digits under small affine changes, 40 x 40; in its original MATLAB files, or drawn by its recipe.

affNIST-like has the MNIST test digits under the same kind of changes: rotation by up to 20 degrees, shear by up to 0.2,
each axis scaled by 0.8 to 1.2, anywhere on the canvas that keeps the digit inside, bilinear. Always report it as
"affNIST-like". The MNIST training digits stand unchanged in the middle of the canvas, as in the paper's study of
robustness (Sec. 4.5.3).
"""

import math
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.cases import Case, DataSet, Problem, Split, read_options
from parsecaps.data.raw_image import DefectError, Format, LastFiles, check_bytes, image_of
from parsecaps.data.reader_pool import RefusedError, call
from parsecaps.data.sources.mnist import CLASSES, image_file, read_idx, read_labels

if TYPE_CHECKING:
    from torch import Tensor

SIDE = 40
PER_DIGIT = 32
_OPTIONS = {"per_digit": PER_DIGIT, "seed": 0}
_NUM_DRAWS = 6  # angle, shear, two scales, two places
_PARTS: dict[str, Split] = {
    **dict.fromkeys(("training", "training_and_validation"), "train"),
    **{"validation": "val", "test": "test"},
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
            f"{root} is no .mat file and holds none; give one, or the folder with 1.mat, 2.mat, ..."
        )
    cases, problems = [], []
    for file in files:
        try:
            labels = call(file_labels, file)
        except RefusedError as refused:
            problems.append(Problem(str(file), None, _UNKNOWN if refused.damaged else str(refused)))
            continue
        names = (file.stem, file.parent.name.removesuffix("_batches"))  # which say the part of MNIST
        split = next((_PARTS[name] for name in names if name in _PARTS), None)
        part = split or "digit"
        cases += [Case(file, label, f"{part}-{i}", frame=i, split=split) for i, label in enumerate(labels)]
    note = "digits of the same number in several files are changed versions of one MNIST digit and count as one patient"
    return DataSet("affnist", root, CLASSES, (), cases, problems, [note], look_alikes=True)


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path] if path.suffix == ".mat" else []
    files = [file for file in path.glob("*.mat") if file.is_file()]
    return sorted(files, key=lambda file: (len(file.stem), file.stem))  # 2.mat before 10.mat


def file_labels(path: Path) -> list[int]:
    """The digit of each image, checked against the number of images."""
    found = _fields(path, "image", "label_int")
    if found is None:
        raise DefectError(_UNKNOWN)
    image, labels = found[0], np.asarray(found[1]).ravel()
    if image.shape != (SIDE**2, len(labels)):
        raise DefectError(f"image is {image.shape}, not ({SIDE**2}, {len(labels)}) as its labels; download it")
    if not np.isin(labels, range(10)).all():
        raise DefectError("label_int is not 0 to 9 everywhere; download it again")
    return [int(label) for label in labels]


@partial(LastFiles, most=2)  # each is decoded as a whole
def _images(path: Path) -> NDArray[np.uint8]:
    """(N, 40, 40) of `affNISTdata.image` (1600, N), whose columns are digits stored row by row."""
    found = _fields(path, "image")
    if found is None:
        raise DefectError("has no affNISTdata.image; of the MATLAB 5 files only those of affNIST are known")
    image = found[0]
    if image.dtype != np.uint8 or image.ndim != 2 or len(image) != SIDE**2:
        raise DefectError(f"has an affNISTdata.image of {image.dtype} {image.shape}; give uint8 ({SIDE**2}, N)")
    return np.ascontiguousarray(image.T).reshape(-1, SIDE, SIDE)


def _fields(path: Path, *names: str) -> list[Any] | None:
    """These fields of affNISTdata, None if one is missing; refused where a variable would unpack to too much."""
    from scipy.io import loadmat

    position, end = _HEADER_BYTES, path.stat().st_size
    with path.open("rb") as opened:
        little = opened.read(_HEADER_BYTES)[126:128] == b"IM"
        while position + 8 <= end:
            opened.seek(position)
            kind, length = np.frombuffer(opened.read(8), "<u4" if little else ">u4").tolist()
            if kind == _COMPRESSED:
                inner = zlib.decompressobj().decompress(opened.read(64), 8)
                check_bytes(int.from_bytes(inner[4:8], "little" if little else "big"))
            position += 8 + length
    data = loadmat(path, variable_names=["affNISTdata"]).get("affNISTdata")
    there = data is not None and set(names) <= set(data.dtype.names or ()) and data.size == 1
    return [data[name].item() for name in names] if there else None


def read_like(path: str) -> DataSet:
    """List the images of `PATH_TO_MNIST[,per_digit=32][,seed=0]`; they are drawn when they are asked for.

    Image i is version i // 10000 of test digit i % 10000 and depends on the seed and i only; training digits come last.
    """
    folder, _, text = path.partition(",")
    options = {name: int(value) for name, value in read_options("affnist-like", text, _OPTIONS).items()}
    if not 1 <= options["per_digit"] <= PER_DIGIT:
        raise ValueError(f"per_digit is {options['per_digit']}; choose 1 to {PER_DIGIT}")
    root = Path(folder)
    labels = read_labels(root, "test")
    digits = read_idx(image_file(root, "test"))
    seed, total = options["seed"], options["per_digit"] * len(labels)
    draws = np.random.default_rng(seed).random((total, _NUM_DRAWS), dtype=np.float32)
    notes = [
        "affNIST-like: made from the MNIST test digits, not the original affNIST; report it under this name",
        f"the {options['per_digit']} versions of a digit count as one patient",
    ]
    still, still_labels = np.zeros((0, 28, 28), np.uint8), list[int]()
    if image_file(root, "train").is_file():
        still, still_labels = read_idx(image_file(root, "train")), read_labels(root, "train")
    else:
        notes.append(f"{image_file(root, 'train').name} is not here: there are no train cases")

    def draw(indices: Sequence[int]) -> np.ndarray:
        import torch  # late: listing the cases does without

        rows = np.asarray(indices, dtype=np.int64)
        moved = rows < total
        border = (SIDE - still.shape[-1]) // 2
        images = np.zeros((len(rows), SIDE, SIDE), np.uint8)
        chosen = torch.from_numpy(digits[rows[moved] % len(labels)])
        images[moved] = change(chosen, torch.from_numpy(draws[rows[moved]])).numpy()
        images[~moved] = np.pad(still[rows[~moved] - total], ((0, 0), (border, border), (border, border)))
        return images[:, None].repeat(3, axis=1)

    image, count = Path(f"affnist-like-seed-{seed}"), len(labels)
    cases = [Case(image, labels[i % count], f"test-{i % count}", frame=i, split="test") for i in range(total)]
    cases += [Case(image, label, f"train-{i}", frame=total + i, split="train") for i, label in enumerate(still_labels)]
    return DataSet("affnist-like", root, CLASSES, (), cases, (), notes, draw, look_alikes=True)


def change(digits: "Tensor", draws: "Tensor") -> "Tensor":
    """Put digits on the canvas under the affine changes that the draws, uniform in [0, 1), stand for.

    Shapes:
        - digits: (n, 28, 28) uint8
        - draws: (n, 6)
        - output: (n, 40, 40) uint8
    """
    import torch
    from torch.nn import functional as F

    if not len(digits):
        return torch.zeros(0, SIDE, SIDE, dtype=torch.uint8)
    matrix, start, centre = placement(digits, draws)
    size = digits.shape[-1]
    line = torch.arange(SIDE, dtype=torch.float32) + 0.5
    place = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).reshape(1, -1, 2)  # (1, 1600, 2), x and y
    origin = (place - start[:, None]) @ torch.linalg.inv(matrix).mT + centre[:, None]
    grid = (origin / size * 2 - 1).reshape(-1, SIDE, SIDE, 2)
    sampled = F.grid_sample(digits[:, None].float(), grid, mode="bilinear", align_corners=False)
    return sampled[:, 0].round().clamp(0, 255).to(torch.uint8)


def placement(digits: "Tensor", draws: "Tensor") -> "tuple[Tensor, Tensor, Tensor]":
    """The affine change of each digit: `canvas = matrix @ (digit - centre) + start`, x before y, in pixels.

    `start` is where the middle of the ink comes to lie, such that all of the ink, spread by a pixel, stays on the
    canvas. A digit of at most 20 x 20 always fits.

    Shapes:
        - digits: (n, 28, 28); draws: (n, 6)
        - matrix: (n, 2, 2); start and centre: (n, 2)
    """
    import torch

    angle = (draws[:, 0] * 2 - 1) * math.radians(20)
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).reshape(-1, 2, 2)
    shearing = torch.eye(2).repeat(len(digits), 1, 1)
    shearing[:, 0, 1] = (draws[:, 1] * 2 - 1) * 0.2
    matrix = rotation @ shearing @ torch.diag_embed(0.8 + 0.4 * draws[:, 2:4])
    low, high = [], []  # of the box of the ink, half a pixel wider on every side; the whole image where there is none
    for axis in (1, 2):  # along the columns for x, along the rows for y
        inked = (digits > 0).any(dim=axis)
        inked |= ~inked.any(dim=1, keepdim=True)
        low.append(inked.float().argmax(dim=1) - 0.5)
        high.append(inked.shape[1] - inked.flip(1).float().argmax(dim=1) + 0.5)
    corner, opposite = torch.stack(low, dim=-1), torch.stack(high, dim=-1)
    centre = (corner + opposite) / 2
    reach = (matrix.abs() @ ((opposite - corner) / 2)[:, :, None])[:, :, 0]  # half the width and height on the canvas
    start = reach + draws[:, 4:6] * (SIDE - 2 * reach)
    return matrix, start, centre


FORMAT = Format(
    name="affNIST .mat",
    suffixes=(".mat",),
    recognise=lambda head: head.startswith(_MAGIC),
    read=lambda path, frame: image_of(_images(path), frame),
    count=lambda path: len(_images(path)),  # the format gives it only with the pixels
    size=lambda path: _images(path).shape[1:],
)
