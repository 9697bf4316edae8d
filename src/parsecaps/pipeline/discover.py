"""The concepts that a run found without labels: what each shows, and whether other runs find it again."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parsecaps.data.cache import prepare_all, prepared_masks
from parsecaps.discovery.discover import DiscoveredConcept, Maps, Masks, discover, effective_concepts
from parsecaps.discovery.naming import Naming, name_concepts, read_notes
from parsecaps.discovery.stability import Stability, stability
from parsecaps.explain.case_memory import (
    THUMBNAILS_FILE,
    CaseMemory,
    TrainingCases,
    remember,
    remember_run,
    training_cases,
    weights_digest,
)
from parsecaps.explain.map_makers import map_makers
from parsecaps.explain.thumbnails import read_thumbnails
from parsecaps.pipeline.evaluate import write_card
from parsecaps.prediction.bundle import Bundle
from parsecaps.report.naming_page import naming_page
from parsecaps.run import Run

Progress = Callable[[str, int, int], None]


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

    def sheet(self, title: str = "") -> str:
        """The page on which a clinician names the concepts; it holds pictures of training cases."""
        place = Run(self.run).bundle_folder
        return naming_page(
            self.memory,
            self.concepts,
            lambda rows: read_thumbnails(place / THUMBNAILS_FILE, rows),
            maps=self.maps,
            stability=self.stability,
            notes=read_notes(place),
            title=title or f"Name the concepts of {self.run.resolve().name}",
        )

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


def discover_run(
    run: str | Path, others: Sequence[str | Path] = (), *, progress: Progress = lambda what, done, total: None
) -> Discovery:
    """Look at the concepts of a run without concept labels through its training cases.

    The memory of these cases is used where it is there, and made where it is not, beside the run's bundle: it holds
    small pictures and patient ids. The `others` are runs on the same data, of other seeds; their models look at the
    same cases, and nothing is written into their folders.
    """
    run = Path(run)
    check_unlabelled(run)
    for other in others:
        check_unlabelled(other)
        _check_same_data(run, Path(other))
    cases = training_cases(run)
    memory, remembered = _memory(run, cases, progress)
    maps, masks = _maps(cases), _masks(cases)
    concepts = discover(memory, maps=maps, masks=masks)
    effective = effective_concepts(memory.presence)
    found = None
    if others:
        digests = {memory.model: run}
        presences = [memory.presence]
        for other in map(Path, others):
            bundle = Bundle.load(other)
            if (digest := weights_digest(bundle.model)) in digests:
                raise ValueError(f"{other} has the same model as {digests[digest]}; give runs of other seeds")
            digests[digest] = other
            presences.append(_look(bundle, cases, f"cases as {other.name} sees them", progress).presence)
        progress("stability", 0, 1)
        found = stability(presences, memory.group, memory.predictions.label)
    return Discovery(run, memory, concepts, effective, maps, tuple(map(Path, others)), found, remembered)


def check_unlabelled(folder: str | Path) -> None:
    """Refuse what has no concepts to discover, in one line that says what it has instead."""
    run, bundle = Run(folder), Bundle.load(folder)
    if not run.data_file.is_file():
        raise FileNotFoundError(f"{run.data_file} is missing; give the folder of a finished run of parsecaps train")
    if not bundle.concepts:
        raise ValueError(f"{folder} was trained without concepts; train with --set model.num_concepts=8 to find some")
    if labelled := run.data_check["concepts"]:
        raise ValueError(
            f"{folder} learned its {len(labelled)} concepts from labels ({', '.join(labelled)}), so they have their "
            f"names; parsecaps audit says how well it knows them, parsecaps explain shows them"
        )


def _check_same_data(run: Path, other: Path) -> None:
    own, theirs = (Run(each).config.data for each in (run, other))
    if (own.path, own.source) != (theirs.path, theirs.source):
        raise ValueError(f"{other} was trained on {theirs.path}, not on {own.path}; give runs on the same data")


def _memory(run: Path, cases: TrainingCases, progress: Progress) -> tuple[CaseMemory, bool]:
    """The memory of a run where it fits the model and the cases, else a new one."""
    place = Run(run).bundle_folder
    with suppress(FileNotFoundError, ValueError):  # there is none, or it is of another model, or damaged
        memory = CaseMemory.load(place, cases.bundle)
        if len(memory) == len(cases.rows) and (place / THUMBNAILS_FILE).is_file():
            return memory, False
    return remember_run(run, progress=lambda done, total: progress("training cases", done, total)), True


def _look(bundle: Bundle, cases: TrainingCases, what: str, progress: Progress) -> CaseMemory:
    """Another model over the same cases."""
    prepared = cases.prepared
    if bundle.preparation != cases.bundle.preparation:
        prepared = prepare_all(cases.data, bundle.preparation, skip_bad=True)
    return remember(bundle, cases.data, prepared, cases.rows, progress=lambda done, total: progress(what, done, total))


def _maps(cases: TrainingCases) -> Maps:
    """Maps of concepts as an explanation has them: along the routes, or of the gradient where a model has none."""
    model = cases.bundle.model.eval()
    make = next(iter(map_makers(model).values()))

    @cache
    def of_images(rows: tuple[int, ...], concept: int) -> np.ndarray:
        images = torch.from_numpy(cases.prepared.images[[cases.rows[row] for row in rows]]).float() / 255
        return np.asarray(make(model, images, about="concepts")[:, concept].detach().float().numpy())

    return lambda rows, concept: of_images(tuple(rows), concept)


def _masks(cases: TrainingCases) -> Masks | None:
    if all(cases.data.cases[row].mask is None for row in cases.rows):
        return None
    return lambda rows: prepared_masks(cases.data, cases.bundle.preparation, [cases.rows[row] for row in rows])


def _concept_dict(concept: DiscoveredConcept, found: Stability | None) -> dict[str, Any]:
    told: dict[str, Any] = asdict(concept) | {
        "purity": None if concept.purity is None else concept.purity._asdict(),
        "overlap": None if concept.overlap is None else concept.overlap._asdict(),
        "prototypes": [
            {"image": each.case.name, "label": each.case.label, "presence": each.presence}
            for each in concept.prototypes
        ],
    }
    if found is not None:
        told["found_again"] = found.by_concept[concept.index]
        told["chance"] = found.chances[concept.index]
        told["class_chance"] = None if found.class_chances is None else found.class_chances[concept.index]
    return told


def _stability_dict(found: Stability) -> dict[str, Any]:
    return {
        "mean": found.mean,
        "chance": found.chance,
        "pairs_of_runs": [
            {"runs": list(runs), "mean": match.mean, "chance": match.chance, "p_value": match.p_value}
            for runs, match in found.matches.items()
        ],
    }


def name_run(model: str | Path, sheet: str | Path) -> list[Naming]:
    """Name the concepts of a run or a saved model, and write the card of a run anew; gives those that changed.

    Concepts that were learned from labels keep their names, by which evaluation finds the labels.
    """
    run = Run(model)
    if run.data_file.is_file():
        check_unlabelled(model)
    changed = name_concepts(model, sheet)
    if run.card_file.is_file():
        write_card(run, run.scores)
    return changed
