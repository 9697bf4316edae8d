"""The fewest concept changes that flip a diagnosis, for models that decide by their concepts alone.

A change turns one concept to absent where it is seen and to present where it is not; of an attribute with several
values it chooses another one. The head is linear, so each change has a fixed effect on each logit.

Any other diagnosis: only the difference between its logit and that of the present one counts. A set of changes raises
it by the sum of their gains, so taking the largest first, one per concept or attribute, is exact. A named diagnosis
must beat all others at once: a small integer program, solved exactly (HiGHS, in scipy).
"""

from dataclasses import dataclass

import numpy as np

from parsecaps.explain.intervention import ConceptReasoning

MARGIN = 1e-5  # of a logit: by how much a diagnosis must win, well above what a solver rounds


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
    n, units = len(options), np.array([option.unit for option in options])
    *_, lead = np.eye(n + 1)  # the last unknown, beside a choice for each option
    chosen = 1 - lead
    constraints = [
        LinearConstraint(np.stack([np.append(units == unit, 0) for unit in np.unique(units)]), -np.inf, 1),
        LinearConstraint(np.column_stack([leads, -np.ones(len(others))]), -start, np.inf),
    ]

    def solve(cost: np.ndarray, *further: LinearConstraint) -> np.ndarray | None:
        found: np.ndarray | None = milp(
            cost,
            integrality=chosen,
            bounds=Bounds(MARGIN * lead, np.append(np.ones(n), np.inf)),
            constraints=[*constraints, *further],
            options={"mip_rel_gap": 0},
        ).x
        return found

    if (fewest := solve(chosen)) is None:
        return None
    count = round(chosen @ fewest)
    clearest = solve(-lead, LinearConstraint(chosen[None], count, count))
    taken = fewest if clearest is None else clearest
    return [option for option, value in zip(options, taken[:n], strict=True) if value > 0.5]
