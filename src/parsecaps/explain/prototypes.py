"""Known cases that speak for an answer: those that show a concept most, and those that are most like an image."""

from typing import NamedTuple

import numpy as np

from parsecaps.explain.known_cases import CaseMemory

_CHUNK = 8192  # cases whose distances are computed at once


class KnownCase(NamedTuple):
    """A case of the memory: its place there and in the file of thumbnails, what is true of it, and what was said.

    `label` is None where it is not known. `probability` is that of the diagnosis.
    """

    row: int
    name: str
    patient: str
    label: str | None
    diagnosis: str
    probability: float


class Prototype(NamedTuple):
    """A case that excites a concept, how much, and whether the concept is there in truth (None: not known)."""

    case: KnownCase
    presence: float
    truth: bool | None


class SimilarCase(NamedTuple):
    """A case and its distance from the image in concept space: 0 is the same, 2 the most there can be."""

    case: KnownCase
    distance: float


def prototypes(memory: CaseMemory, concept: int, count: int = 9) -> list[Prototype]:
    """The cases in which a concept is most present, the strongest first, one per patient; of equals the earlier."""
    if not 0 <= concept < memory.presence.shape[1]:
        raise ValueError(f"concept {concept} is not among the {memory.presence.shape[1]} of the model, from 0")
    presence, truth = memory.presence[:, concept], memory.truth[:, concept]
    return [
        Prototype(known_case(memory, row), float(presence[row]), None if np.isnan(truth[row]) else bool(truth[row]))
        for row in first_of_patients(memory, -presence, count)
    ]


def similar(memory: CaseMemory, capsules: np.ndarray, count: int = 5) -> list[SimilarCase]:
    """The cases nearest to an image in concept space, the nearest first, one per patient.

    The distance is the root of the mean, over the concepts, of the squared distance between their capsules: it sees how
    present a concept is (the length) and also how it looks (the direction).

    Shapes:
        - capsules: (m, d_c), the image's concept capsules
    """
    capsules = np.asarray(capsules, dtype=np.float32)
    if capsules.shape != memory.capsules.shape[1:]:
        raise ValueError(f"the concept capsules are {capsules.shape}; {memory.capsules.shape[1:]} are remembered")
    distance = distances(memory, capsules)
    return [
        SimilarCase(known_case(memory, row), float(distance[row])) for row in first_of_patients(memory, distance, count)
    ]


def distances(memory: CaseMemory, capsules: np.ndarray) -> np.ndarray:
    """From an image (m, d_c) to each of the cases: (N,) float32."""
    flat = memory.capsules.reshape(len(memory), -1)
    wanted = capsules.reshape(-1).astype(np.float32)
    found = np.empty(len(flat), dtype=np.float32)
    for start in range(0, len(flat), _CHUNK):
        apart = flat[start : start + _CHUNK].astype(np.float32) - wanted
        found[start : start + _CHUNK] = np.einsum("nd,nd->n", apart, apart)
    return np.asarray(np.sqrt(found / np.float32(len(capsules))))


def first_of_patients(memory: CaseMemory, score: np.ndarray, count: int) -> list[int]:
    """The rows with the lowest scores (N,), in order, the best of each patient only; fewer where patients are few."""
    if count < 1:
        raise ValueError(f"{count} cases show nothing; ask for at least 1")
    order = np.argsort(score, kind="stable")
    _, first = np.unique(memory.group[order], return_index=True)
    return [int(row) for row in order[np.sort(first)[:count]]]


def known_case(memory: CaseMemory, row: int) -> KnownCase:
    """What is known of a case."""
    said, chances = memory.predictions, memory.probabilities[row]
    label, best = int(said.label[row]), int(chances.argmax())
    truth = None if label < 0 else said.classes[label]
    return KnownCase(row, said.name[row], said.patient[row], truth, said.classes[best], float(chances[best]))
