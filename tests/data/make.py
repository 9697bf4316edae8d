"""Small data sets for the tests: as tables only, or with real image files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parsecaps.data.cases import Case, DataSet


def table(patients: Sequence[tuple[str, int, int]], classes: Sequence[str] = ("a", "b"), **fields: object) -> DataSet:
    """Cases without files: for each patient its name, its label and how many images it has."""
    cases = [
        Case(Path("/data") / f"{name}-{i}.png", label, name) for name, label, count in patients for i in range(count)
    ]
    return DataSet("folder", Path("/data"), tuple(classes), (), cases, **fields)  # type: ignore[arg-type]


def picture(seed: int, side: int = 48) -> np.ndarray:
    """A random picture (side, side, 3) uint8 with coarse and fine structure: one of a kind for each seed."""
    from scipy.ndimage import zoom

    random = np.random.default_rng(seed)
    layers = [
        weight * zoom(random.random((k, k, 1)), (side / k, side / k, 3), order=1) for k, weight in ((6, 0.6), (20, 0.4))
    ]
    return (255 * sum(layers)).clip(0, 255).astype(np.uint8)


def folder_of_pictures(root: Path, classes: Sequence[str] = ("a", "b"), per_class: int = 6, side: int = 48) -> DataSet:
    """Real PNG files, a folder per class, two images per patient."""
    from PIL import Image

    cases = []
    for label, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(per_class):
            path = root / name / f"{i}.png"
            Image.fromarray(picture(1000 * label + i, side)).save(path)
            cases.append(Case(path, label, f"{name}{i // 2}"))
    return DataSet("folder", root, tuple(classes), (), cases)
