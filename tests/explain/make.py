"""Memories and reasonings from plain numbers, without a model or images."""

import numpy as np

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.explain.intervention import ConceptReasoning, exclusive_groups
from parsecaps.metrics.predictions import Predictions


def make_memory(
    presence: np.ndarray,
    *,
    label: np.ndarray | None = None,
    truth: np.ndarray | None = None,
    patient: list[str] | None = None,
    names: tuple[str, ...] = (),
    dim: int = 4,
) -> CaseMemory:
    """Capsules of the given lengths in random directions; three classes."""
    random = np.random.default_rng(7)
    count, m = presence.shape
    directions = random.normal(size=(count, m, dim))
    directions /= np.linalg.norm(directions, axis=-1, keepdims=True)
    shares = random.random((count, m)) + 0.1
    said = Predictions(
        logits=random.normal(size=(count, 3)),
        label=random.integers(3, size=count) if label is None else label,
        patient=[f"p{i // 2}" for i in range(count)] if patient is None else patient,
        name=[f"image {i}" for i in range(count)],
        classes=("glioma", "meningioma", "pituitary"),
        presence=presence,
        concepts=np.full(presence.shape, np.nan) if truth is None else truth,
        concept_names=names or tuple(f"unnamed {j + 1}" for j in range(m)),
    )
    capsules = (directions * presence[..., None]).astype(np.float16)
    return CaseMemory(said, capsules, (shares / shares.sum(1, keepdims=True)).astype(np.float32), "0" * 16)


def make_reasoning(
    weight: np.ndarray, bias: np.ndarray | None = None, names: tuple[str, ...] = (), temperature: float = 1.0
) -> ConceptReasoning:
    """With the margins 0.9 and 0.1."""
    num_classes, m = weight.shape
    names = names or tuple(f"c{j}" for j in range(m))
    return ConceptReasoning(
        classes=tuple(f"class {k}" for k in range(num_classes)),
        concepts=names,
        weight=weight.astype(np.float64),
        bias=np.zeros(num_classes) if bias is None else bias,
        temperature=temperature,
        present=np.full(m, 0.9),
        absent=np.full(m, 0.1),
        threshold=np.full(m, 0.5),
        group=exclusive_groups(names),
    )
