"""Small data sets and settings to train on in a second, and a quiet training without scores."""

import csv
import random
from functools import partial
from pathlib import Path

from parsecaps.training import Callbacks
from parsecaps.training.fit import fit
from tests.data.make import folder_of_pictures

TINY = ["model.preset=tiny", "training.epochs=2", "training.batch_size=8"]
train = partial(fit, callbacks=Callbacks(), score=False)
PHANTOM = ["data.path=phantom:n=72,size=32", *TINY]


def skewed_manifest(root: Path) -> Path:
    """Twice as many of class a as of b; two concepts that about half of the cases say nothing about."""
    folder_of_pictures(root / "pictures", per_class=28, side=32)
    chance = random.Random(0)
    path = root / "cases.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "label", "patient", "concept:veil", "concept:streaks"])
        for label, count in (("a", 28), ("b", 14)):
            for i in range(count):
                known = chance.random() < 0.5
                concepts = [chance.choice("01"), chance.choice(["0", "1", ""])] if known else ["", ""]
                writer.writerow([f"pictures/{label}/{i}.png", label, f"{label}{i // 2}", *concepts])
    return path
