"""affNIST-like: where affNIST cannot be had, the MNIST test digits under the same kind of affine changes.

Rotation by up to 20 degrees, shear by up to 0.2, each axis scaled by 0.8 to 1.2, anywhere on a canvas of 40 x 40 that
keeps the digit inside, bilinear. Always to be reported as "affNIST-like".

The MNIST training digits stand unchanged in the middle of the canvas: a network that has only seen them moved about
(`augmentation.padding`) is tested on what it never saw, as in the paper's study of robustness (Sec. 4.5.3).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy as np

from parsecaps.data.cases import Case, DataSet, Source
from parsecaps.data.sources.mnist import CLASSES, image_file, read_idx, read_labels

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

        from parsecaps.data.affine_digits import CANVAS, change

        rows = np.asarray(indices, dtype=np.int64)
        moved = rows < total
        border = (CANVAS - still.shape[-1]) // 2
        images = np.zeros((len(rows), CANVAS, CANVAS), np.uint8)
        chosen = torch.from_numpy(digits[rows[moved] % len(labels)])
        images[moved] = change(chosen, torch.from_numpy(draws[rows[moved]])).numpy()
        images[~moved] = np.pad(still[rows[~moved] - total], ((0, 0), (border, border), (border, border)))
        return images[:, None].repeat(3, axis=1)

    cases = _Cases(Path(f"affnist-like-seed-{seed}"), labels, total, still_labels)
    return DataSet("affnist-like", root, CLASSES, (), cases, (), notes, draw, look_alikes=True)


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
