"""The phantom: skin lesions drawn by rule (`docs/phantom.md`), as a source `phantom:n=2000,size=64,seed=0`."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from parsecaps.data.cases import Case, DataSet, read_options
from parsecaps.data.phantom.checklist import CLASSES, CONCEPTS, Cases, case_table, diagnose, score
from parsecaps.data.phantom.drawing import PhantomBatch, draw

__all__ = ["CLASSES", "CONCEPTS", "Cases", "PhantomBatch", "case_table", "diagnose", "draw", "score"]

MOST_IMAGES, LARGEST = 10**6, 2048
DEFAULTS: dict[str, float] = {"n": 2000, "size": 64, "seed": 0, "label_noise": 0.0, "concept_noise": 0.0}


def read(text: str) -> DataSet:
    """The cases of a phantom; its pictures are drawn when they are asked for."""
    options = read_options("phantom", text, DEFAULTS)
    if options["n"] < 1:
        raise ValueError(f"phantom:n={options['n']} has no images; give at least 1")
    for name, most in (("n", MOST_IMAGES), ("size", LARGEST)):
        if options[name] > most:
            raise ValueError(f"phantom:{name}={options[name]} is more than can be drawn; give at most {most}")
    n, size, seed = (int(options[name]) for name in ("n", "size", "seed"))
    table = case_table(n, seed=seed, label_noise=options["label_noise"], concept_noise=options["concept_noise"])
    root = Path("phantom:" + ",".join(f"{name}={options[name]}" for name in DEFAULTS))
    labels, concepts, patients = table.label.tolist(), table.concepts.tolist(), table.patient.tolist()
    cases = [Case(root / f"{i:06}", labels[i], f"patient {patients[i]}", concepts=tuple(concepts[i])) for i in range(n)]

    def pixels(rows: Sequence[int]) -> np.ndarray:
        return np.asarray(draw(list(rows), size=size, seed=seed).image)

    def masks(rows: Sequence[int], wanted: int) -> np.ndarray:
        return np.asarray(draw(list(rows), size=wanted, seed=seed).concept_masks)  # the same scene at every size

    return DataSet("phantom", root, CLASSES, CONCEPTS, cases, draw=pixels, concept_masks=masks)
