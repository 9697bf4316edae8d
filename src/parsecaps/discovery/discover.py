"""Concepts that nobody labelled: whether they vary and differ, what they show, and how one-sided that is."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet, prepared_masks
from parsecaps.discovery.stability import Stability, concept_stability, correlation
from parsecaps.explain.attribution import Target, attribution_maps, has_routes
from parsecaps.explain.case_memory import (
    THUMBNAILS_FILE,
    CaseMemory,
    Prototype,
    first_of_patients,
    prototypes,
    remember,
    remember_run,
)
from parsecaps.files.writing import refuse_links
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest
from parsecaps.run import Run
from parsecaps.types import Grid, StageCallback, silent

DEAD = 0.01  # a presence whose standard deviation over the cases is below this says nothing
DUPLICATE = 0.95  # correlation beyond which two concepts say the same, or the exact opposite
PURITY_CASES = 20  # prototypes whose classes are counted
_DRAWS = 1000

Maps = Callable[[Sequence[int], int], np.ndarray]  # rows of the memory, a concept -> (n, size, size), none below 0
Masks = Callable[[Sequence[int]], np.ndarray]  # rows of the memory -> (n, size, size) in [0, 1], zeros without one


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
    """Means over the `n` prototypes with a mask: the map's mass inside, the mask's share of the image, which a map
    without a clue has inside, and how often the map's highest point is inside.
    """

    inside: float
    share: float
    pointing: float
    n: int


@dataclass(frozen=True)
class DiscoveredConcept:
    """A concept as the training cases show it; `purity` needs labels, `overlap` maps and masks.

    `mean` and `std` of its presence over the cases; `dead` where it hardly varies. `closest` is the other concept with
    the largest absolute correlation; `duplicate` where that is nearly 1.
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
        if self.dead:
            return "hardly varies"
        if self.duplicate and self.closest is not None:
            return f"{'same as' if self.closest[1] > 0 else 'opposite of'} {self.closest[0]}"
        return ""


@dataclass(frozen=True, eq=False)
class Discovery:
    """The concepts of a run with the memory of its training cases; they vary as `effective` unrelated ones would."""

    run: Path
    memory: CaseMemory
    concepts: list[DiscoveredConcept]
    effective: float
    maps: Maps
    others: tuple[Path, ...] = ()
    stability: Stability | None = None
    remembered: bool = False  # the memory was made now

    def table(self) -> Grid:
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
            "stability": self.stability and self.stability.as_dict(),
            "concepts": [self._concept(each) for each in self.concepts],
        }

    def _concept(self, concept: DiscoveredConcept) -> dict[str, Any]:
        numbers: dict[str, Any] = asdict(concept) | {
            "purity": concept.purity and concept.purity._asdict(),
            "overlap": concept.overlap and concept.overlap._asdict(),
            "prototypes": [
                {"image": each.case.name, "label": each.case.label, "presence": each.presence}
                for each in concept.prototypes
            ],
        }
        if (found := self.stability) is not None:
            j, by_class = concept.index, found.class_chances
            numbers |= {"found_again": found.by_concept[j], "chance": found.chances[j]}
            numbers["class_chance"] = None if by_class is None else by_class[j]
        return numbers


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
        others = np.where(np.arange(len(between)) == j, -1, np.abs(between[j]))
        nearest = int(others.argmax())
        r = float(between[j, nearest]) if len(between) > 1 else None
        overlap = None if maps is None or masks is None else mask_overlap(maps(rows, j), masks(rows))
        found.append(
            DiscoveredConcept(
                index=j,
                name=name,
                mean=float(presence[:, j].mean()),
                std=float(std[j]),
                dead=bool(std[j] < DEAD),
                closest=None if r is None else (memory.predictions.concept_names[nearest], r),
                duplicate=r is not None and abs(r) > DUPLICATE,
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
    """How one-sided the strongest prototypes of a concept are by class, and by chance; None where no label is known."""
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
    """How far maps (n, size, size) agree with masks of the same shape; images without either are left out."""
    usable = (masks.max((1, 2)) > 0) & (maps.sum((1, 2)) > 0)
    maps, masks = maps[usable], masks[usable]
    n = len(maps)
    if not n:
        return None
    inside = (maps * masks).sum((1, 2)) / maps.sum((1, 2))
    highest = maps.reshape(n, -1).argmax(1)
    pointing = masks.reshape(n, -1)[np.arange(n), highest] >= 0.5
    return MaskOverlap(float(inside.mean()), float(masks.mean()), float(pointing.mean()), n)


def discover_run(
    run: str | Path,
    others: Sequence[str | Path] = (),
    *,
    device: str = "auto",
    progress: StageCallback = silent,
) -> Discovery:
    """Look at the concepts of a run without concept labels through its training cases.

    The memory of these cases is made in the run's `known_cases` where it is missing: it holds small pictures and
    patient ids. The `others` are runs of other seeds on the same data; nothing is written into their folders.
    """
    run = Path(run)
    refuse_links(run)
    check_unlabelled(run)
    opened = Run(run, device=device)
    own, cases = opened.model, opened.cases("train")
    models, digests = dict[Path, Model](), {weights_digest(own.network): run}
    for other in map(Path, others):
        check_unlabelled(other)
        section, theirs = opened.config.data, Run(other).config.data
        if (section.path, section.source) != (theirs.path, theirs.source):
            raise ValueError(f"{other} was trained on {theirs.path}, not on {section.path}; give runs on the same data")
        models[other] = Model.load(other, device)
        if (digest := weights_digest(models[other].network)) in digests:
            raise ValueError(f"{other} has the same model as {digests[digest]}; give runs of other seeds")
        digests[digest] = other
    memory, remembered = _memory(opened, cases, progress)
    maps, masks = _maps(own, cases), None
    if any(case.mask is not None for case in cases):
        masks = lambda rows: prepared_masks(cases.data, own.preparation, cases.subset(rows).rows)  # noqa: E731
    progress("prototypes", 0, 1)
    concepts = discover_concepts(memory, maps=maps, masks=masks)
    progress("prototypes", 1, 1)
    effective = effective_concepts(memory.presence)
    found = None
    if models:
        presences = [memory.presence]
        for other, model in models.items():
            alike = model.preparation == own.preparation
            prepared = cases.prepared if alike else prepare_all(cases.data, model.preparation, skip_bad=True)
            seen = CaseSet(cases.data, prepared, cases.rows)
            stage = partial(progress, f"cases as {other.name} sees them")
            presences.append(remember(model, seen, progress=stage).presence)
        progress("stability", 0, 1)
        found = concept_stability(presences, memory.group, memory.predictions.label)
        progress("stability", 1, 1)
    return Discovery(run, memory, concepts, effective, maps, tuple(models), found, remembered)


def check_unlabelled(folder: str | Path) -> None:
    """Refuse what has no concepts to discover, in one line that says what it has instead."""
    run, model = Run(folder), Model.load(folder, "cpu")
    if not run.data_file.is_file():
        raise FileNotFoundError(f"{run.data_file} is missing; give the folder of a finished run of parsecaps train")
    if not model.concepts:
        advice = "train with --set model.num_concepts=8 to find some"
        if not model.network.names_concepts:
            advice = f"{type(model.network).__name__} has no place for any; train a ParseCaps to find some"
        raise ValueError(f"{folder} was trained without concepts; {advice}")
    if labelled := run.data_check["concepts"]:
        raise ValueError(
            f"{folder} learned its {len(labelled)} concepts from labels ({', '.join(labelled)}), so they have their "
            f"names; parsecaps audit says how well it knows them, parsecaps explain shows them"
        )


def _memory(run: Run, cases: CaseSet, progress: StageCallback) -> tuple[CaseMemory, bool]:
    """The memory of a run where it fits the model and the cases, else a new one."""
    with suppress(ValueError):  # it is of another model, or damaged
        memory = run.model.memory
        if memory and len(memory) == len(cases) and (run.known_cases_folder / THUMBNAILS_FILE).is_file():
            return memory, False
    return remember_run(run, device=run.device, progress=partial(progress, "training cases")), True


def _maps(model: Model, cases: CaseSet) -> Maps:
    """Maps of concepts as an explanation has them: along the routes, or of the gradient where a model has none."""
    network = model.network.eval()
    method = "routes" if has_routes(network) else "grad-cam"

    @cache
    def of_images(positions: tuple[int, ...], concept: int) -> np.ndarray:
        images = torch.from_numpy(cases.subset(positions).images).float() / 255
        maps = attribution_maps(network, images.to(model.device), [Target("concepts", concept)], method)
        return np.asarray(maps[:, 0].detach().float().cpu().numpy())

    return lambda rows, concept: of_images(tuple(rows), concept)
