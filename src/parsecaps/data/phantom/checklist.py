"""What a case is before it is drawn: patient, concepts, the diagnosis by the checklist, and the annotation."""

from collections.abc import Mapping
from itertools import permutations
from typing import NamedTuple

import numpy as np

from parsecaps.data.cases import SKIN_CLASSES, SKIN_CONCEPTS
from parsecaps.data.phantom.canvas import Flags, Floats, Integers, Randomness

CLASSES, CONCEPTS = SKIN_CLASSES, SKIN_CONCEPTS
POINTS = {
    "atypical pigment network": 2,
    "blue-whitish veil": 2,
    "irregular streaks": 1,
    "irregular dots and globules": 1,
}
THRESHOLD = 3
EXCLUSIVE = (CONCEPTS[0:2], CONCEPTS[3:5], CONCEPTS[5:7])
PRIOR = dict(zip(CONCEPTS, (0.35, 0.40, 0.35, 0.25, 0.30, 0.30, 0.38), strict=True))

_PATIENT_SIZES = np.array(list(permutations((1, 2, 3, 4))))  # ten images of four patients, in any of 24 orders
_BLOCK = 10


class Cases(NamedTuple):
    """N cases without their pictures: the annotations, and what is drawn, which are equal without noise.

    Shapes:
        - concepts, true_concepts: (N, 7) float32, 1 or 0, in the order of `CONCEPTS`
        - label, true_label: (N,) int64, an index into `CLASSES`
        - patient: (N,) int64
    """

    concepts: Floats
    label: Integers
    patient: Integers
    true_concepts: Floats
    true_label: Integers


def score(concepts: Floats) -> Integers:
    """(..., 7) -> (...): the points of the seven-point checklist, from 0 to 6; three of its criteria are not drawn."""
    points = np.array([POINTS.get(name, 0) for name in CONCEPTS], np.float32)
    return np.asarray((concepts * points).sum(-1).astype(np.int64))


def diagnose(concepts: Floats) -> Integers:
    """(..., 7) -> (...): melanoma (1) at `THRESHOLD` points or more, else nevus (0).

    >>> diagnose(np.array([[0, 1, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0, 1]], np.float32)).tolist()  # 3 points, 2 points
    [1, 0]
    """
    return (score(concepts) >= THRESHOLD).astype(np.int64)


def patients(indices: Integers, seed: int) -> Integers:
    """The patient of each image: in every ten images four patients, with 1, 2, 3 and 4 images in an order of chance."""
    block, place = np.divmod(indices, _BLOCK)
    order = Randomness(seed, "patients of a block", block).uniform("order") * len(_PATIENT_SIZES)
    ends = _PATIENT_SIZES[order.astype(np.int64)].cumsum(1)  # (N, 4)
    return np.asarray(4 * block + (place[:, None] >= ends).sum(1))


def draw_cases(
    indices: Integers, *, seed: int, concept_noise: float, label_noise: float, force: Mapping[str, bool] | None
) -> Cases:
    """The cases of these image numbers; `force` sets concepts, and switches off what excludes a concept set to true."""
    for name, rate in (("concept_noise", concept_noise), ("label_noise", label_noise)):
        if not 0 <= rate <= 1:
            raise ValueError(f"{name} is {rate}; give a fraction from 0 to 1")
    if indices.size and indices.min() < 0:
        raise ValueError(f"image number {indices.min()} does not exist; count from 0")
    random = Randomness(seed, "case", indices)
    present = np.zeros((len(indices), len(CONCEPTS)), bool)
    for group in (*EXCLUSIVE, ("blue-whitish veil",)):
        chance = random.uniform(f"presence of {group[0]}")
        start = 0.0
        for name in group:  # one number decides: the first of the group, the second, or none
            present[:, CONCEPTS.index(name)] = (chance >= start) & (chance < start + PRIOR[name])
            start += PRIOR[name]
    _force(present, force or {})
    truth = present.astype(np.float32)
    label = diagnose(truth)
    wrong_concept = random.uniform("wrong concept", len(CONCEPTS)) < concept_noise
    wrong_label = random.uniform("wrong label") < label_noise
    return Cases(
        concepts=np.abs(truth - wrong_concept).astype(np.float32),
        label=np.abs(label - wrong_label),
        patient=patients(indices, seed),
        true_concepts=truth,
        true_label=label,
    )


def case_table(n: int, *, seed: int = 0, concept_noise: float = 0.0, label_noise: float = 0.0) -> Cases:
    """The first `n` cases, as `draw` gives them, without drawing.

    >>> case_table(5).patient.tolist()
    [0, 0, 0, 0, 1]
    """
    indices = np.arange(n, dtype=np.int64)
    return draw_cases(indices, seed=seed, concept_noise=concept_noise, label_noise=label_noise, force=None)


def _force(present: Flags, force: Mapping[str, bool]) -> None:
    if unknown := [name for name in force if name not in CONCEPTS]:
        raise ValueError(f"there is no concept {unknown[0]!r} to force; choose from {', '.join(CONCEPTS)}")
    for first, second in EXCLUSIVE:
        if force.get(first) and force.get(second):
            raise ValueError(f"{first} and {second} exclude each other; force only one of them")
        if force.get(first) or force.get(second):
            present[:, [CONCEPTS.index(first), CONCEPTS.index(second)]] = False
    for name, value in force.items():
        present[:, CONCEPTS.index(name)] = value
