"""Concepts set by hand and the diagnosis that follows, for models that decide by their concepts alone.

In a bottleneck a logit is a bias and a sum over concepts, so all of this is exact, and a page repeats it with the
numbers of `as_dict`: `softmax((weight @ values + bias) / temperature)`. The values are the presences, or what stands
behind them: their logits, or activations of which they are the tanh. A model that mixes concept vectors (`CEM`) has
weights and a bias of each image's own.

"Present" is the median presence of the training cases that have the concept and show it (above 0.5), "absent" that of
those that lack it and do not. Where truth is unknown, the 95th and the 5th percentile over all training cases, and the
middle between them is the threshold. Without training cases, the margins 0.9 and 0.1 that training aims at
(Sec. 3.3.1). For logits and activations it is the percentiles, too (Koh et al. 2020). Concept vectors are made for 1
and 0 (Espinosa Zarlenga et al. 2022).

A counterfactual turns concepts to absent where they are seen and to present where they are not; of an attribute it
chooses another value. Each change has a fixed effect on each logit, and against another diagnosis only the difference
of two logits counts: taking the largest gains first, one per concept or attribute, is exact.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import logit, softmax

from parsecaps.explain.case_memory import CaseMemory
from parsecaps.metrics import THRESHOLD
from parsecaps.metrics.predictions import group_numbers
from parsecaps.model import Model
from parsecaps.nn.heads import Scale
from parsecaps.prediction.predict import as_array
from parsecaps.types import Output

_ENDS = (5, 95)  # percentiles
_LEAST = 1e-7  # from 0 and 1: presences beyond have no finite value behind them


@dataclass(frozen=True, eq=False)
class ConceptReasoning:
    """How a bottleneck gets from m presences to K classes; concepts of one `group` exclude each other.

    Shapes:
        - weight: (K, m), or (N, K, m) where each of N images has its own; bias: (K,) or (N, K), likewise
        - present, absent, threshold: (m,); group: (m,) int; all float64
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
    scale: Scale = "presence"

    def of_image(self, rows: int | np.ndarray) -> "ConceptReasoning":
        if self.weight.ndim == 2:
            return self
        return replace(self, weight=self.weight[rows], bias=self.bias[rows])

    def values(self, presence: np.ndarray) -> np.ndarray:
        """What is weighed: (..., m) -> (..., m)."""
        presence = np.asarray(presence, dtype=np.float64)
        if self.scale == "presence":
            return presence
        inside = presence.clip(_LEAST, 1 - _LEAST)
        return np.asarray(logit(inside) if self.scale == "logit" else np.arctanh(inside))

    def contributions(self, presence: np.ndarray) -> np.ndarray:
        """What each concept adds to each logit; with the bias they sum to it. (..., m) -> (..., K, m)."""
        return np.asarray(self.values(presence)[..., None, :] * self.weight)

    def logits(self, presence: np.ndarray) -> np.ndarray:
        return np.asarray(self.contributions(presence).sum(-1) + self.bias)

    def probabilities(self, presence: np.ndarray) -> np.ndarray:
        """Calibrated: (..., m) -> (..., K)."""
        return np.asarray(softmax(self.logits(presence) / self.temperature, axis=-1))

    def seen(self, presence: np.ndarray) -> np.ndarray:
        """Which concepts count as present: (..., m) -> (..., m) bool."""
        return np.asarray(presence) > self.threshold

    def change(self, presence: np.ndarray, changes: Mapping[str, bool]) -> np.ndarray:
        """The presences (m,) with some concepts set to present (True) or absent (False), by name.

        If one value of an attribute is set present, its other values are set absent, unless they are given as well.
        """
        changed = np.array(presence, dtype=np.float64)
        places = {name: j for j, name in enumerate(self.concepts)}
        if unknown := [name for name in changes if name not in places]:
            raise ValueError(f"the model has no concept {unknown[0]!r}; it has {', '.join(self.concepts)}")
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
        plain = vars(self) | {"classes": list(self.classes), "concepts": list(self.concepts)}
        return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in plain.items()}


def concept_reasoning(
    model: Model,
    memory: CaseMemory | None = None,
    *,
    temperature: float = 1.0,
    output: Output | None = None,
) -> ConceptReasoning:
    """The reasoning of a model that decides by its concepts alone; others are refused.

    A model with weights of each image's own needs the `output` for them (B images): these are then an axis.
    """
    kind = type(model.network).__name__
    found = model.network.reasoning(output)
    if found is None:
        nothing = f"this {kind} does not decide by its concepts alone, so setting one changes nothing"
        raise ValueError(f"{nothing}; train with --set model.head=bottleneck")
    if found.by_image and output is None:
        raise ValueError(f"{kind} weighs its concepts anew in each image; give the output for some images as well")
    m = len(model.concepts)
    absent, present = (np.full(m, value) for value in found.margins)
    reasoning = ConceptReasoning(
        classes=model.classes,
        concepts=model.concepts,
        weight=as_array(found.weight),
        bias=as_array(found.bias),
        temperature=temperature,
        present=present,
        absent=absent,
        threshold=np.full(m, THRESHOLD),
        group=exclusive_groups(model.concepts),
        scale=found.scale,
    )
    return reasoning if memory is None else with_typical(reasoning, memory.presence, memory.truth)


def with_typical(reasoning: ConceptReasoning, presence: np.ndarray, truth: np.ndarray) -> ConceptReasoning:
    """The same with what training cases say of present and absent; not where each image has its own weights.

    Shapes:
        - presence: (N, m); truth: (N, m), NaN = unknown
    """
    if reasoning.weight.ndim == 3:
        return reasoning
    absent, present, threshold = reasoning.absent.copy(), reasoning.present.copy(), reasoning.threshold.copy()
    low, high = np.percentile(presence, _ENDS, axis=0)
    for j, (here, known) in enumerate(zip(presence.T, truth.T, strict=True)):
        shown, lacking = here[(known == 1) & (here > THRESHOLD)], here[(known == 0) & (here <= THRESHOLD)]
        if np.isnan(known).all():
            absent[j], present[j], threshold[j] = low[j], high[j], (low[j] + high[j]) / 2
        if len(shown):
            present[j] = np.median(shown)
        if len(lacking):
            absent[j] = np.median(lacking)
    if reasoning.scale != "presence":
        absent, present = low, high
    return replace(reasoning, absent=absent, present=present, threshold=threshold)


def exclusive_groups(concepts: Sequence[str]) -> np.ndarray:
    """A number for each concept, equal for the values of one attribute, named `attribute=value`: (m,) int.

    >>> exclusive_groups(["size=big", "veil", "size=small"])
    array([0, 1, 0])
    """
    return group_numbers([name.partition("=")[0].strip() if "=" in name else "" for name in concepts])


MARGIN = 1e-5  # of a logit: by how much a diagnosis must win


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """The changes (concept to present or absent), as few as can be; of several such sets the one that wins by most.

    Shapes:
        - presence: (m,) after the changes; before, after: (K,) calibrated probabilities
    """

    changes: dict[str, bool]
    diagnosis: str
    was: str
    presence: np.ndarray
    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True)
class _Option:
    """One change: the concept that it sets, to what, the attribute it uses up, and its effect (K,) on the logits."""

    concept: int
    present: bool
    unit: int
    effect: np.ndarray


def counterfactual(reasoning: ConceptReasoning, presence: np.ndarray) -> Counterfactual | None:
    """The fewest changes after which the diagnosis is another one; None where no changes can do it.

    Shapes:
        - presence: (m,)
    """
    presence = np.asarray(presence, dtype=np.float64)
    logits, options = reasoning.logits(presence), _options(reasoning, presence)
    was = int(logits.argmax())
    flips = []
    for other in range(len(logits)):
        largest: dict[int, tuple[float, _Option]] = {}  # of each concept or attribute
        for option in options:
            gain = float(option.effect[other] - option.effect[was])
            if gain > largest.get(option.unit, (0.0, None))[0]:
                largest[option.unit] = gain, option
        lead, chosen = float(logits[other] - logits[was]), []
        for gain, option in sorted(largest.values(), key=lambda each: -each[0]):
            if lead >= MARGIN:
                break
            lead += gain
            chosen.append(option)
        if lead >= MARGIN:
            flips.append((len(chosen), -lead, chosen))
    if not flips:
        return None
    *_, best = min(flips, key=lambda flip: flip[:2])
    changes = {reasoning.concepts[option.concept]: option.present for option in best}
    after = reasoning.change(presence, changes)
    return Counterfactual(
        changes=changes,
        diagnosis=reasoning.classes[int(reasoning.logits(after).argmax())],
        was=reasoning.classes[was],
        presence=after,
        before=reasoning.probabilities(presence),
        after=reasoning.probabilities(after),
    )


def _options(reasoning: ConceptReasoning, presence: np.ndarray) -> list[_Option]:
    seen = reasoning.seen(presence)
    options = []
    for j, name in enumerate(reasoning.concepts):
        unit = int(reasoning.group[j])
        together = reasoning.group == unit
        if together.sum() == 1:
            present = not seen[j]
        elif seen[j] and seen[together].sum() == 1:
            continue  # the value that the attribute has already
        else:
            present = True
        moved = reasoning.values(reasoning.change(presence, {name: present})) - reasoning.values(presence)
        options.append(_Option(j, present, unit, reasoning.weight @ moved))
    return options
