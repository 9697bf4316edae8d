"""The fewest concept changes that flip a diagnosis, for models that decide by their concepts alone.

A change turns one concept to absent where it is seen and to present where it is not; of an attribute with several
values it chooses another one. The head is linear, so each change has a fixed effect on each logit, and for each other
diagnosis only the difference between its logit and that of the present one counts. A set of changes raises it by the
sum of their gains, so taking the largest first, one per concept or attribute, is exact.
"""

from dataclasses import dataclass

import numpy as np

from parsecaps.explain.intervention import ConceptReasoning

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
