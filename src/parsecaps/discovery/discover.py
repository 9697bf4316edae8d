"""Concepts that nobody labelled: whether they are alive, what they show, and how one-sided that is.

A model trained without concept labels has concepts that only a reconstruction and the classes shaped. Nothing forces
them to vary over images or to differ from each other, so that is measured first.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from parsecaps.discovery.stability import Stability, correlation
from parsecaps.explain.case_memory import CaseMemory, Prototype, first_of_patients, prototypes
from parsecaps.types import Grid

DEAD = 0.01  # a presence whose standard deviation over the cases is below this says nothing
DUPLICATE = 0.95  # correlation beyond which two concepts say the same, or the exact opposite
PURITY_CASES = 20  # prototypes whose classes are counted
_DRAWS = 1000

Maps = Callable[[Sequence[int], int], np.ndarray]  # rows of the memory, a concept -> (n, size, size), none below 0
Masks = Callable[
    [Sequence[int]], np.ndarray
]  # rows of the memory -> (n, size, size) in [0, 1], zeros where there is none


class Purity(NamedTuple):
    """The class that most of the `n` strongest prototypes have, one per patient, and what share of them.

    `chance` is the mean of that share for as many patients drawn at random, `p_value` how often it is as much.
    """

    label: str
    share: float
    n: int
    chance: float
    p_value: float

    def __str__(self) -> str:
        return f"{self.share:.0%} {self.label}\n({self.chance:.0%}, {self.p_value:.3f})"


class MaskOverlap(NamedTuple):
    """Means over the `n` prototypes with a mask: the map's mass inside, the mask's share of the image, and how often
    the map's highest point is inside. A map that knows nothing of the mask has as much inside as the mask's share.
    """

    inside: float
    share: float
    pointing: float
    n: int


@dataclass(frozen=True)
class DiscoveredConcept:
    """A concept as the training cases show it.

    `mean` and `std` of its presence over the cases; `dead` where it hardly varies. `closest` is the other concept whose
    presence goes most with its own, either way, with the correlation; `duplicate` where that is nearly 1 or -1.
    `purity` is None without labels, `overlap` without maps or masks.
    """

    index: int
    name: str
    mean: float
    std: float
    dead: bool
    closest: tuple[str, float] | None
    duplicate: bool
    purity: Purity | None
    overlap: MaskOverlap | None
    prototypes: list[Prototype]

    @property
    def remark(self) -> str:
        """What stands in the way of naming it."""
        if self.dead:
            return "hardly varies"
        if self.duplicate and self.closest is not None:
            return f"{'same as' if self.closest[1] > 0 else 'opposite of'} {self.closest[0]}"
        return ""


@dataclass(frozen=True, eq=False)
class Discovery:
    """The concepts of a run with the memory of its training cases, which show them.

    `effective` is as how many unrelated concepts they vary. `stability` is over the run and the `others`, None without
    any. `remembered` says whether the memory was made now, or was there.
    """

    run: Path
    memory: CaseMemory
    concepts: list[DiscoveredConcept]
    effective: float
    maps: Maps
    others: tuple[Path, ...] = ()
    stability: Stability | None = None
    remembered: bool = False

    def table(self) -> Grid:
        """The concepts; columns that say nothing of any are left out."""
        columns = {"concept": [each.name for each in self.concepts]}
        columns["presence"] = [f"{each.mean:.2f} ± {each.std:.2f}" for each in self.concepts]
        if any(each.purity for each in self.concepts):
            columns["strongest patients\n(chance, p)"] = [str(each.purity or "-") for each in self.concepts]
        overlaps = [each.overlap for each in self.concepts]
        if any(overlaps):
            inside = [f"{each.inside:.0%}\n({each.share:.0%})" if each else "-" for each in overlaps]
            columns |= {"map in mask\n(mask's share)": inside}
            columns |= {"points\nat it": [f"{each.pointing:.0%}" if each else "-" for each in overlaps]}
        if self.stability is not None:
            columns["found again\n(chance, by class)"] = self.stability.cells()
        columns["remark"] = [each.remark for each in self.concepts]
        ends = (0, len(columns) - 1)  # names may be long
        title = f"{len(self.concepts)} concepts of {self.run}"
        return Grid(title, list(columns), list(zip(*columns.values(), strict=True)), left=ends, folded=ends)

    def lines(self) -> list[str]:
        """How many concepts there really are, and how far they are those of other runs."""
        dead, same = sum(each.dead for each in self.concepts), sum(each.duplicate for each in self.concepts)
        rest = f"{dead} hardly vary, {same} say the same as another"
        lines = [f"they vary as {self.effective:.1f} unrelated concepts would; {rest}"]
        if self.stability is not None:
            worst = max(match.p_value for match in self.stability.matches.values())
            others = ", ".join(each.name for each in self.others)
            lines.append(
                f"found again by {others}: correlation {self.stability.mean:.2f} on average, "
                f"{self.stability.chance:.2f} with patients exchanged (p at most {worst:.3f})"
            )
        return lines

    def as_dict(self) -> dict[str, Any]:
        """All numbers, for JSON; of the prototypes the file names, but no patients."""
        return {
            "run": str(self.run),
            "others": [str(each) for each in self.others],
            "cases": len(self.memory),
            "patients": len(np.unique(self.memory.group)),
            "effective_concepts": self.effective,
            "stability": None if self.stability is None else _stability_dict(self.stability),
            "concepts": [_concept_dict(each, self.stability) for each in self.concepts],
        }


def discover_concepts(
    memory: CaseMemory, *, count: int = 9, maps: Maps | None = None, masks: Masks | None = None
) -> list[DiscoveredConcept]:
    """Each concept of a model with its prototypes and what can be said of them."""
    presence = memory.presence
    std = presence.std(0)
    between = correlation(presence, presence)
    found = []
    for j, name in enumerate(memory.predictions.concept_names):
        shown = prototypes(memory, j, count)
        rows = [each.case.row for each in shown]
        closest = _closest(between[j], j)
        overlap = None if maps is None or masks is None else mask_overlap(maps(rows, j), masks(rows))
        found.append(
            DiscoveredConcept(
                index=j,
                name=name,
                mean=float(presence[:, j].mean()),
                std=float(std[j]),
                dead=bool(std[j] < DEAD),
                closest=None if closest is None else (memory.predictions.concept_names[closest[0]], closest[1]),
                duplicate=closest is not None and abs(closest[1]) > DUPLICATE,
                purity=purity(memory, j),
                overlap=overlap,
                prototypes=shown,
            )
        )
    return found


def effective_concepts(presence: np.ndarray) -> float:
    """As how many unrelated concepts the presences (N, m) vary: m if no two go together, 1 if all do, 0 if all dead.

    The participation ratio of the eigenvalues of their correlations, (sum of them)² / sum of their squares.

    >>> effective_concepts(np.array([[0.1, 0.1, 0.9], [0.5, 0.5, 0.5], [0.9, 0.9, 0.1]]))
    1.0
    """
    alive = presence[:, presence.std(0) >= DEAD]
    eigenvalues = np.linalg.eigvalsh(correlation(alive, alive)) if alive.shape[1] else np.zeros(1)
    return round(float(eigenvalues.sum() ** 2 / max(float((eigenvalues**2).sum()), 1e-12)), 6)


def purity(memory: CaseMemory, concept: int, *, count: int = PURITY_CASES, seed: int = 0) -> Purity | None:
    """How one-sided the strongest prototypes of a concept are by class; None where no label is known.

    Unknown labels are left out. Chance is drawn from the strongest case of every patient, so a common class alone does
    not make a concept look pure.
    """
    label = memory.predictions.label
    rows = first_of_patients(memory, -memory.presence[:, concept], len(memory))
    of_patients = np.array([label[row] for row in rows if label[row] >= 0])
    if not len(of_patients):
        return None
    n = min(count, len(of_patients))
    most, times = Counter(of_patients[:n].tolist()).most_common(1)[0]
    random = np.random.default_rng(seed)
    draws = [np.bincount(random.permutation(of_patients)[:n]).max() for _ in range(_DRAWS)]
    as_much = sum(int(drawn) >= times for drawn in draws)
    chance = float(np.mean(draws)) / n
    return Purity(memory.predictions.classes[most], times / n, n, chance, (as_much + 1) / (_DRAWS + 1))


def mask_overlap(maps: np.ndarray, masks: np.ndarray) -> MaskOverlap | None:
    """How far maps (n, size, size) agree with masks of the same shape; None where there is no mask or no map.

    Images without a mask, or whose map is 0 everywhere, are left out.
    """
    if maps.shape != masks.shape:
        raise ValueError(f"maps are {maps.shape} and masks {masks.shape}; give both at the size of the prepared image")
    usable = (masks.max((1, 2)) > 0) & (maps.sum((1, 2)) > 0)
    maps, masks = maps[usable], masks[usable]
    n = len(maps)
    if not n:
        return None
    inside = (maps * masks).sum((1, 2)) / maps.sum((1, 2))
    highest = maps.reshape(n, -1).argmax(1)
    pointing = masks.reshape(n, -1)[np.arange(n), highest] >= 0.5
    return MaskOverlap(float(inside.mean()), float(masks.mean()), float(pointing.mean()), n)


def _concept_dict(concept: DiscoveredConcept, found: Stability | None) -> dict[str, Any]:
    numbers: dict[str, Any] = asdict(concept) | {
        "purity": None if concept.purity is None else concept.purity._asdict(),
        "overlap": None if concept.overlap is None else concept.overlap._asdict(),
        "prototypes": [
            {"image": each.case.name, "label": each.case.label, "presence": each.presence}
            for each in concept.prototypes
        ],
    }
    if found is not None:
        numbers["found_again"] = found.by_concept[concept.index]
        numbers["chance"] = found.chances[concept.index]
        numbers["class_chance"] = None if found.class_chances is None else found.class_chances[concept.index]
    return numbers


def _stability_dict(found: Stability) -> dict[str, Any]:
    return {
        "mean": found.mean,
        "chance": found.chance,
        "pairs_of_runs": [
            {"runs": list(runs), "mean": match.mean, "chance": match.chance, "p_value": match.p_value}
            for runs, match in found.matches.items()
        ],
    }


def _closest(between: np.ndarray, j: int) -> tuple[int, float] | None:
    others = np.where(np.arange(len(between)) == j, -1, np.abs(between))
    return None if len(between) < 2 else (int(others.argmax()), float(between[others.argmax()]))
