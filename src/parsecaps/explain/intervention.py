"""Concepts set by hand and the diagnosis that follows, for models that decide by their concepts alone.

With `head="bottleneck"` a logit is a bias and a sum over concepts, so all of this is exact, and a page can do the same
in a few lines of its own with the numbers of `as_dict`: `softmax((weight @ presence + bias) / temperature)`.

What number stands for "present"? That which the model gives where it is right: the median presence of the training
cases that have the concept and show it (above 0.5), and of those that lack it and do not. Where truth is unknown, as
for concepts that nobody named, the 95th and the 5th percentile over all training cases, with the middle between them
as what parts present from absent. Without training cases, the margins 0.9 and 0.1 that training aims at (Sec. 3.3.1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax
from torch import nn

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.metrics import THRESHOLD
from parsecaps.nn.heads import Bottleneck
from parsecaps.prediction.bundle import Bundle

MARGINS = (0.1, 0.9)  # absent, present: of the presentation loss
_ENDS = (5, 95)  # percentiles


@dataclass(frozen=True, eq=False)
class ConceptReasoning:
    """How a bottleneck gets from m presences to K classes.

    `group` numbers the concepts that exclude each other alike (`exclusive_groups`).

    Shapes:
        - weight: (K, m); bias: (K,); present, absent, threshold: (m,); group: (m,) int; all float64
    """

    classes: tuple[str, ...]
    concepts: tuple[str, ...]
    weight: np.ndarray
    bias: np.ndarray
    temperature: float
    present: np.ndarray
    absent: np.ndarray
    threshold: np.ndarray
    group: np.ndarray

    def contributions(self, presence: np.ndarray) -> np.ndarray:
        """What each concept adds to each logit; with the bias they sum to it. (..., m) -> (..., K, m)."""
        return np.asarray(np.asarray(presence)[..., None, :] * self.weight)

    def logits(self, presence: np.ndarray) -> np.ndarray:
        """(..., m) -> (..., K)."""
        return np.asarray(np.asarray(presence) @ self.weight.T + self.bias)

    def probabilities(self, presence: np.ndarray) -> np.ndarray:
        """Calibrated: (..., m) -> (..., K)."""
        return np.asarray(softmax(self.logits(presence) / self.temperature, axis=-1))

    def seen(self, presence: np.ndarray) -> np.ndarray:
        """Which concepts count as present: (..., m) -> (..., m) bool."""
        return np.asarray(presence) > self.threshold

    def change(self, presence: np.ndarray, changes: Mapping[str, bool]) -> np.ndarray:
        """The presences (m,) with some concepts set to present (True) or absent (False), by name.

        To set one value of an attribute present sets its other values absent, unless they are given as well.
        """
        changed = np.array(presence, dtype=np.float64)
        places = {name: j for j, name in enumerate(self.concepts)}
        for name in changes:
            if name not in places:
                raise ValueError(f"the model has no concept {name!r}; it has {', '.join(self.concepts)}")
        chosen = [places[name] for name, wanted in changes.items() if wanted]
        if len(set(self.group[chosen])) < len(chosen):
            raise ValueError(f"two values of one attribute cannot both be present: {', '.join(changes)}; choose one")
        for j in chosen:
            others = self.group == self.group[j]
            changed[others] = self.absent[others]
        for name, wanted in changes.items():
            j = places[name]
            changed[j] = self.present[j] if wanted else self.absent[j]
        return changed

    def as_dict(self) -> dict[str, Any]:
        """All that a page needs to compute the same, ready for JSON; no digit is lost."""
        arrays = {
            name: getattr(self, name).tolist() for name in ("weight", "bias", "present", "absent", "threshold", "group")
        }
        names = {"classes": list(self.classes), "concepts": list(self.concepts)}
        return {**names, "temperature": self.temperature, **arrays}


def concept_reasoning(
    bundle: Bundle, memory: CaseMemory | None = None, *, temperature: float | None = None
) -> ConceptReasoning:
    """The reasoning of a model with `head="bottleneck"`; any other is refused in one line.

    The temperature is that of the memory if left out, 1 without one.
    """
    head = bottleneck_of(bundle.model)
    if temperature is None:
        temperature = 1.0 if memory is None else memory.temperature
    if not (np.isfinite(temperature) and temperature > 0):
        raise ValueError(f"temperature is {temperature}; give a number above 0")
    m = len(bundle.concepts)
    if memory is None:
        absent, present = (np.full(m, margin) for margin in MARGINS)
        threshold = np.full(m, THRESHOLD)
    else:
        absent, present, threshold = typical_presences(memory.presence, memory.truth)
    return ConceptReasoning(
        classes=bundle.classes,
        concepts=bundle.concepts,
        weight=head.weight.detach().double().cpu().numpy(),
        bias=head.bias.detach().double().cpu().numpy(),
        temperature=float(temperature),
        present=present,
        absent=absent,
        threshold=threshold,
        group=exclusive_groups(bundle.concepts),
    )


def bottleneck_of(model: nn.Module) -> Bottleneck:
    """The bottleneck of a model, or a line that says how to get one."""
    head = next((module for module in model.modules() if isinstance(module, Bottleneck)), None)
    if head is None:
        raise ValueError(
            f"this {type(model).__name__} does not decide by its concepts alone, so setting one changes nothing; "
            "train with --set model.head=bottleneck"
        )
    return head


def typical_presences(presence: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What presence means absent, what present, and what lies between them, for each concept: three times (m,).

    Shapes:
        - presence: (N, m); truth: (N, m), NaN = unknown
    """
    m = presence.shape[1]
    absent, present, threshold = np.full(m, MARGINS[0]), np.full(m, MARGINS[1]), np.full(m, THRESHOLD)
    for j in range(m):
        here, known = presence[:, j], truth[:, j]
        if np.isnan(known).all():
            absent[j], present[j] = np.percentile(here, _ENDS)
            threshold[j] = (absent[j] + present[j]) / 2
            continue
        shown, lacking = here[(known == 1) & (here > THRESHOLD)], here[(known == 0) & (here <= THRESHOLD)]
        if len(shown):
            present[j] = np.median(shown)
        if len(lacking):
            absent[j] = np.median(lacking)
    return absent, present, threshold


def exclusive_groups(concepts: Sequence[str]) -> np.ndarray:
    """A number for each concept, equal for the values of one attribute, of which an image has one: (m,) int.

    Concepts named `attribute=value` share their attribute; any other stands alone.

    >>> exclusive_groups(["size=big", "veil", "size=small"])
    array([0, 1, 0])
    """
    keys = [name.split("=", 1)[0].strip() if "=" in name else j for j, name in enumerate(concepts)]
    numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([numbers[key] for key in keys], dtype=np.int64)
