"""The fewest concept changes that flip a diagnosis, for models that decide by their concepts alone.

A change turns one concept to absent where it is seen and to present where it is not; of an attribute with several
values it chooses another one. Each has a fixed effect on each logit, whatever else is changed, because the head is
linear; that makes exact answers cheap.

Any other diagnosis: the diagnosis c is lost as soon as one class t is above it, and only the difference between these
two logits matters for that. A set of changes raises it by the sum of their gains, so no set of s changes raises it more
than the s largest gains, one per concept or attribute. Taking the largest first is therefore exact for the pair, and
the least over all t is exact for the flip.

A named diagnosis must beat all others at once, and the largest gains against one may help another. That is a small
integer program, solved by branch and bound (HiGHS, in scipy), which gives the true optimum.
"""

from dataclasses import dataclass

import numpy as np

from parsecaps.explain.intervention import ConceptReasoning

MARGIN = 1e-5  # of a logit: by how much a diagnosis must win, well above what a solver rounds


@dataclass(frozen=True, eq=False)
class Counterfactual:
    """The changes (concept to present or absent), as few as can be, and what follows from them.

    Of several smallest sets it is the one that wins by most. `ConceptReasoning.change` repeats it.

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


def counterfactual(
    reasoning: ConceptReasoning, presence: np.ndarray, target: str | None = None
) -> Counterfactual | None:
    """The fewest changes after which the diagnosis is another one, or `target`; None where no changes can do it.

    Shapes:
        - presence: (m,)
    """
    presence = np.asarray(presence, dtype=np.float64)
    logits = reasoning.logits(presence)
    was = int(logits.argmax())
    options = _options(reasoning, presence)
    if target is None:
        chosen = _any_flip(options, logits, was)
    else:
        if target not in reasoning.classes:
            raise ValueError(f"the model has no class {target!r}; it has {', '.join(reasoning.classes)}")
        wanted = reasoning.classes.index(target)
        chosen = [] if wanted == was else _flip_to(options, logits, wanted)
    if chosen is None:
        return None
    changes = {reasoning.concepts[option.concept]: option.present for option in chosen}
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


def _any_flip(options: list[_Option], logits: np.ndarray, was: int) -> list[_Option] | None:
    best: tuple[int, float, list[_Option]] | None = None
    for other in range(len(logits)):
        if other == was:
            continue
        gains = [(float(option.effect[other] - option.effect[was]), option) for option in options]
        largest: dict[int, tuple[float, _Option]] = {}
        for gain, option in gains:
            if option.unit not in largest or gain > largest[option.unit][0]:
                largest[option.unit] = gain, option
        lead, chosen = float(logits[other] - logits[was]), []
        for gain, option in sorted(largest.values(), key=lambda each: -each[0]):
            if lead >= MARGIN or gain <= 0:
                break
            lead += gain
            chosen.append(option)
        if lead >= MARGIN and (best is None or (len(chosen), -lead) < best[:2]):
            best = len(chosen), -lead, chosen
    return None if best is None else best[2]


def _flip_to(options: list[_Option], logits: np.ndarray, wanted: int) -> list[_Option] | None:
    """Least changes first; then, with that many, the largest lead over the second."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    if not options:
        return None
    others = [k for k in range(len(logits)) if k != wanted]
    effect = np.stack([option.effect for option in options], axis=1)  # (K, options)
    leads, start = effect[wanted] - effect[others], logits[wanted] - logits[others]
    n = len(options)
    units = np.array([option.unit for option in options])
    one_each = LinearConstraint(np.stack([units == unit for unit in np.unique(units)]).astype(float), -np.inf, 1)
    fewest = milp(
        np.ones(n),
        integrality=np.ones(n),
        bounds=Bounds(0, 1),
        constraints=[one_each, LinearConstraint(leads, MARGIN - start, np.inf)],
        options={"mip_rel_gap": 0},
    )
    if fewest.x is None:
        return None
    count = round(fewest.fun)
    wide = np.hstack([one_each.A, np.zeros((len(one_each.A), 1))])  # one more unknown: the lead
    clearest = milp(
        np.append(np.zeros(n), -1),
        integrality=np.append(np.ones(n), 0),
        bounds=Bounds(np.append(np.zeros(n), 0), np.append(np.ones(n), np.inf)),
        constraints=[
            LinearConstraint(wide, -np.inf, 1),
            LinearConstraint(np.append(np.ones(n), 0)[None], count, count),
            LinearConstraint(np.hstack([leads, -np.ones((len(others), 1))]), -start, np.inf),
        ],
        options={"mip_rel_gap": 0},
    )
    taken = fewest.x if clearest.x is None else clearest.x[:n]
    return [option for option, value in zip(options, taken, strict=True) if value > 0.5]
