"""What a network with ImageNet weights sees in medical images, as concepts for another network to learn.

    python -m studies.distil DATA --sets bus lidc wbcatt --out runs/distil/no-isic-cemri
    parsecaps pretrain runs/distil/no-isic-cemri/teacher.csv --out runs/distil/no-isic-cemri/trunk

`DATA` is a folder with `isic`, `bus`, `lidc`, `cemri` and `wbcatt`. EfficientNet-Lite0 looks at every training image.
Its features are projected onto the directions in which images of one set differ most, and each becomes a concept: is
this image above the middle of its set? The manifest has these concepts, and the classes as `set/class`. Learning both
is distillation by hashing: the tree learns what the teacher tells apart, in a form that its own concept layer has.
"""

import argparse
import csv
from pathlib import Path

import numpy as np
import torch

from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet
from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.data.splits import hold_out, official
from parsecaps.models import EfficientNetLite0, imagenet_weights

PLACES = {
    "isic": "isic/manifest.csv",
    "bus": "bus/manifest.csv",
    "lidc": "lidc/manifest.csv",
    "cemri": "cemri",
    "wbcatt": "wbcatt",
}
BITS = 64
_SIDE = 160  # pixels that the teacher sees
_BATCH = 32


def teacher_features(data: DataSet) -> np.ndarray:
    """What the teacher makes of every image of a data set: (N, 1280)."""
    prepared = prepare_all(data, Preparation(size=_SIDE, channels=3))
    model = EfficientNetLite0(num_classes=2, in_channels=3, image_size=_SIDE).eval()
    model.load_state_dict(imagenet_weights(3), strict=False)
    rows, found = np.arange(len(data)), []
    pixels = np.stack([prepared.images[i].reshape(3, -1).mean(1) for i in rows[:: max(1, len(rows) // 500)]]) / 255
    model.standardise.use(pixels.mean(0).tolist(), [0.25] * 3)
    with torch.no_grad():
        for start in range(0, len(rows), _BATCH):
            image = torch.from_numpy(np.array(prepared.images[start : start + _BATCH])).float() / 255
            found.append(model.features(model.standardise(image)).numpy())
    return np.concatenate(found)


def concepts_of(features: list[np.ndarray], bits: int = BITS) -> list[np.ndarray]:
    """For each set of features (N, d), which of them are above the set's middle along each direction: (N, bits)."""
    centred = [each - each.mean(0) for each in features]
    spread = sum(each.T @ each / len(each) for each in centred)  # each set counts the same
    _, directions = np.linalg.eigh(spread)
    chosen = directions[:, ::-1][:, :bits]
    along = [each @ chosen for each in centred]
    return [each > np.median(each, axis=0) for each in along]


def learned_rows(data: DataSet) -> list[int]:
    """The cases to learn from: those of the official training part, or all but a fifth of the patients."""
    named = any(case.split == "train" for case in data.cases)
    division = official(data, val=0.0) if named else hold_out(data, val=0.0, test=0.2)
    return [i for i, part in enumerate(division) if part == "train"]


def write_manifest(path: Path, names: list[str], sets: list[DataSet], concepts: list[np.ndarray]) -> None:
    """All images of all sets, with their classes and the teacher's concepts."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["image", "label", "patient", *(f"concept:teacher {i + 1}" for i in range(concepts[0].shape[1]))]
        )
        for name, data, known in zip(names, sets, concepts, strict=True):
            for case, row in zip(data.cases, known, strict=True):
                label = f"{name}/{data.classes[case.label]}" if case.label >= 0 else ""
                writer.writerow([case.image.resolve(), label, f"{name}/{case.patient}", *map(int, row)])


def main() -> None:
    """Write the manifest of some sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=PLACES, default=list(PLACES))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sets = []
    for name in options.sets:
        whole = open_data(options.data / PLACES[name])
        sets.append(whole.subset(learned_rows(whole)))
    features = [teacher_features(data) for data in sets]
    write_manifest(options.out / "teacher.csv", options.sets, sets, concepts_of(features))
    print(f"{sum(map(len, sets)):,} images in {options.out / 'teacher.csv'}")


if __name__ == "__main__":
    main()
