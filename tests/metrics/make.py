"""Predictions to score: as good as wanted, some truths unknown, several images per patient."""

import numpy as np

from parsecaps.metrics.predictions import Predictions


def make_predictions(
    count: int = 60,
    num_classes: int = 3,
    num_concepts: int = 4,
    *,
    seed: int = 0,
    skill: float = 1.5,
    unknown: float = 0.1,
    ties: bool = True,
    per_patient: int = 3,
) -> Predictions:
    """`skill` is added to the logit of the truth; with `ties`, scores take few values."""
    random = np.random.default_rng(seed)
    label = random.integers(num_classes, size=count)
    label[:num_classes] = np.arange(num_classes)
    logits = random.normal(size=(count, num_classes))
    logits[np.arange(count), label] += skill
    concepts = (random.random((count, num_concepts)) < 0.4).astype(float)
    presence = random.random((count, num_concepts)) * 0.7 + 0.3 * concepts
    if ties:
        logits, presence = np.round(logits), np.round(presence, 1)
    label[random.random(count) < unknown] = -1
    concepts[random.random(concepts.shape) < unknown] = np.nan
    return Predictions(
        logits=logits,
        label=label,
        presence=presence,
        concepts=concepts,
        patient=[f"patient {i // per_patient}" for i in range(count)],
        name=[f"image {i}" for i in range(count)],
        classes=tuple(f"class {k}" for k in range(num_classes)),
        concept_names=tuple(f"concept {j}" for j in range(num_concepts)),
    )
