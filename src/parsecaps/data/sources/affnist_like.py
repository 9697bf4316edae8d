"""affNIST-like: where affNIST cannot be had, the MNIST test digits under the same kind of affine changes.

Rotation by up to 20 degrees, shear by up to 0.2, each axis scaled by 0.8 to 1.2, anywhere on a canvas of 40 x 40 that
keeps the digit inside, bilinear. Always to be reported as "affNIST-like".

The MNIST training digits stand unchanged in the middle of the canvas: a network that has only seen them moved about
(`augmentation.padding`) is tested on what it never saw, as in the paper's study of robustness (Sec. 4.5.3).
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from parsecaps.data.cases import Case, DataSet, Source
from parsecaps.data.sources.mnist import CLASSES, image_file, read_idx, read_labels

CANVAS = 40
PER_DIGIT = 32
_OPTIONS = {"per_digit": PER_DIGIT, "seed": 0}
_NUM_DRAWS = 6  # angle, shear, two scales, two places


def read(path: str) -> DataSet:
    """List the images of `PATH_TO_MNIST[,per_digit=32][,seed=0]`; they are drawn when they are asked for.

    Image i is version i // 10000 of test digit i % 10000 and depends on the seed and i only; the training digits, where
    they are there, come after the last version.
    """
    folder, options = _parse(path)
    root = Path(folder)
    labels = read_labels(root, "test")
    digits = torch.from_numpy(read_idx(image_file(root, "test")))
    seed, total = options["seed"], options["per_digit"] * len(labels)
    draws = np.random.default_rng(seed).random((total, _NUM_DRAWS), dtype=np.float32)
    notes = [
        "affNIST-like: made from the MNIST test digits, not the original affNIST; report it under this name",
        f"the {options['per_digit']} versions of a digit count as one patient",
    ]
    still, still_labels = torch.zeros(0, 28, 28, dtype=torch.uint8), list[int]()
    if image_file(root, "train").is_file():
        still, still_labels = torch.from_numpy(read_idx(image_file(root, "train"))), read_labels(root, "train")
    else:
        notes.append(f"{image_file(root, 'train').name} is not here: there are no train cases")

    def draw(indices: Sequence[int]) -> np.ndarray:
        rows = np.asarray(indices, dtype=np.int64)
        moved = rows < total
        images = torch.zeros(len(rows), CANVAS, CANVAS, dtype=torch.uint8)
        images[moved] = change(digits[rows[moved] % len(labels)], torch.from_numpy(draws[rows[moved]]))
        images[~moved] = F.pad(still[rows[~moved] - total], [(CANVAS - still.shape[-1]) // 2] * 4)
        return images.numpy()[:, None].repeat(3, axis=1)

    cases = _Cases(Path(f"affnist-like-seed-{seed}"), labels, total, still_labels)
    return DataSet("affnist-like", root, CLASSES, (), cases, (), notes, draw, look_alikes=True)


def change(digits: Tensor, draws: Tensor) -> Tensor:
    """Put digits on the canvas under the affine changes that the draws, uniform in [0, 1), stand for.

    Shapes:
        - digits: (n, 28, 28) uint8
        - draws: (n, 6)
        - output: (n, 40, 40) uint8
    """
    if not len(digits):
        return torch.zeros(0, CANVAS, CANVAS, dtype=torch.uint8)
    matrix, start, centre = placement(digits, draws)
    size = digits.shape[-1]
    line = torch.arange(CANVAS, dtype=torch.float32) + 0.5
    place = torch.stack(torch.meshgrid(line, line, indexing="xy"), dim=-1).reshape(1, -1, 2)  # (1, 1600, 2), x and y
    origin = (place - start[:, None]) @ torch.linalg.inv(matrix).mT + centre[:, None]
    grid = (origin / size * 2 - 1).reshape(-1, CANVAS, CANVAS, 2)
    sampled = F.grid_sample(digits[:, None].float(), grid, mode="bilinear", align_corners=False)
    return sampled[:, 0].round().clamp(0, 255).to(torch.uint8)


def placement(digits: Tensor, draws: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The affine change of each digit: `canvas = matrix @ (digit - centre) + start`, x before y, in pixels.

    `start` is where the middle of the ink comes to lie, such that all of the ink, spread by a pixel as bilinear
    sampling does, stays on the canvas. A digit of at most 20 x 20, as MNIST's are, always fits.

    Shapes:
        - digits: (n, 28, 28); draws: (n, 6)
        - matrix: (n, 2, 2); start and centre: (n, 2)
    """
    angle = (draws[:, 0] * 2 - 1) * math.radians(20)
    shear = (draws[:, 1] * 2 - 1) * 0.2
    scale = 0.8 + 0.4 * draws[:, 2:4]
    rotation = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], dim=-1).reshape(-1, 2, 2)
    shearing = torch.eye(2).repeat(len(digits), 1, 1)
    shearing[:, 0, 1] = shear
    matrix = rotation @ shearing @ torch.diag_embed(scale)
    low, high = _ink(digits)
    centre = (low + high) / 2
    reach = (matrix.abs() @ ((high - low) / 2)[:, :, None])[:, :, 0]  # half the width and height on the canvas
    start = reach + draws[:, 4:6] * (CANVAS - 2 * reach)
    return matrix, start, centre


def _ink(digits: Tensor) -> tuple[Tensor, Tensor]:
    """The box of the ink (n, 2) each, half a pixel wider on every side; the whole image where there is none."""
    low, high = [], []
    for axis in (1, 2):  # along the columns for x, along the rows for y
        inked = (digits > 0).any(dim=axis)
        inked |= ~inked.any(dim=1, keepdim=True)
        low.append(inked.float().argmax(dim=1) - 0.5)
        high.append(inked.shape[1] - inked.flip(1).float().argmax(dim=1) + 0.5)
    return torch.stack(low, dim=-1), torch.stack(high, dim=-1)


class _Cases(Sequence[Case]):
    """The cases, made when they are asked for: there are 380,000 of them."""

    def __init__(self, image: Path, labels: list[int], moved: int, still_labels: list[int]) -> None:
        self._image, self._labels, self._moved, self._still_labels = image, labels, moved, still_labels

    def __len__(self) -> int:
        return self._moved + len(self._still_labels)

    @overload
    def __getitem__(self, index: int) -> Case: ...
    @overload
    def __getitem__(self, index: slice) -> list[Case]: ...
    def __getitem__(self, index: int | slice) -> Case | list[Case]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        if place >= self._moved:
            digit = place - self._moved
            return Case(self._image, self._still_labels[digit], f"train-{digit}", frame=place, split="train")
        digit = place % len(self._labels)
        return Case(self._image, self._labels[digit], f"test-{digit}", frame=place, split="test")


def _parse(path: str) -> tuple[str, dict[str, int]]:
    folder, *words = path.split(",")
    options = dict(_OPTIONS)
    for word in words:
        name, _, value = word.strip().partition("=")
        if name not in options or not value.isdecimal():
            raise ValueError(f"{word!r} is no option of affnist-like; write per_digit=4 or seed=1")
        options[name] = int(value)
    if not 1 <= options["per_digit"] <= PER_DIGIT:
        raise ValueError(f"per_digit is {options['per_digit']}; choose 1 to {PER_DIGIT}")
    return folder, options


SOURCE = Source(
    name="affnist-like",
    summary="MNIST on a canvas: training digits as they are, test digits under affine changes like affNIST's",
    layout="affnist-like:PATH_TO_MNIST",
    recognise=lambda path: False,
    read=read,
)
