"""The concepts that a run found without labels: what each shows, and whether other runs find it again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch

from parsecaps.data.cache import prepare_all
from parsecaps.data.case_set import CaseSet, prepared_masks
from parsecaps.discovery.discover import (
    DiscoveredConcept,
    Discovery,
    Maps,
    Masks,
    discover_concepts,
    effective_concepts,
)
from parsecaps.discovery.naming import LONGEST, SHEET_FILE, Naming, name_concepts, read_notes
from parsecaps.discovery.stability import Stability, concept_stability
from parsecaps.evaluation import write_card
from parsecaps.explain.attribution import Target, attribution_maps, has_routes
from parsecaps.explain.case_memory import (
    THUMBNAILS_FILE,
    CaseMemory,
    read_thumbnails,
    remember,
    remember_run,
)
from parsecaps.files.writing import refuse_links
from parsecaps.model import Model, is_unnamed
from parsecaps.models.pretrained import weights_digest
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, overlay_jpeg
from parsecaps.run import Run
from parsecaps.types import StageCallback, silent

Pictures = Callable[[Sequence[int]], list[bytes]]  # rows of the memory -> JPEG files


def discover_run(
    run: str | Path,
    others: Sequence[str | Path] = (),
    *,
    device: str = "auto",
    progress: StageCallback = silent,
) -> Discovery:
    """Look at the concepts of a run without concept labels through its training cases.

    The memory of these cases is used where it is there, and made where it is not, in the run's `known_cases`: it holds
    small pictures and patient ids. The `others` are runs on the same data, of other seeds; their models look at the
    same cases, and nothing is written into their folders.
    """
    run = Path(run)
    refuse_links(run)
    check_unlabelled(run)
    opened = Run(run, device=device)
    own, cases = opened.model, opened.cases("train")
    bundles, digests = dict[Path, Model](), {weights_digest(own.network): run}
    for other in map(Path, others):
        check_unlabelled(other)
        _check_same_data(run, other)
        bundles[other] = Model.load(other, device)
        if (digest := weights_digest(bundles[other].network)) in digests:
            raise ValueError(f"{other} has the same model as {digests[digest]}; give runs of other seeds")
        digests[digest] = other
    memory, remembered = _memory(opened, cases, progress)
    maps, masks = _maps(own, cases), _masks(own, cases)
    progress("prototypes", 0, 1)
    concepts = discover_concepts(memory, maps=maps, masks=masks)
    progress("prototypes", 1, 1)
    effective = effective_concepts(memory.presence)
    found = None
    if bundles:
        presences = [memory.presence]
        for other, model in bundles.items():
            alike = model.preparation == own.preparation
            prepared = cases.prepared if alike else prepare_all(cases.data, model.preparation, skip_bad=True)
            seen = CaseSet(cases.data, prepared, cases.rows)
            stage = partial(progress, f"cases as {other.name} sees them")
            presences.append(remember(model, seen, progress=stage).presence)
        progress("stability", 0, 1)
        found = concept_stability(presences, memory.group, memory.predictions.label)
        progress("stability", 1, 1)
    return Discovery(run, memory, concepts, effective, maps, tuple(bundles), found, remembered)


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


def _check_same_data(run: Path, other: Path) -> None:
    own, theirs = (Run(each).config.data for each in (run, other))
    if (own.path, own.source) != (theirs.path, theirs.source):
        raise ValueError(f"{other} was trained on {theirs.path}, not on {own.path}; give runs on the same data")


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


def _masks(model: Model, cases: CaseSet) -> Masks | None:
    if all(case.mask is None for case in cases):
        return None
    return lambda rows: prepared_masks(cases.data, model.preparation, cases.subset(rows).rows)


def naming_sheet(found: Discovery) -> str:
    """The page on which a clinician names the concepts; it holds pictures of training cases."""
    run = Run(found.run)
    place = run.known_cases_folder
    return naming_page(
        found.memory,
        found.concepts,
        lambda rows: read_thumbnails(place / THUMBNAILS_FILE, rows),
        maps=found.maps,
        stability=found.stability,
        notes=read_notes(run),
        title=f"Name the concepts of {found.run.resolve().name}",
    )


def naming_page(
    memory: CaseMemory,
    concepts: Sequence[DiscoveredConcept],
    pictures: Pictures,
    *,
    maps: Maps | None = None,
    stability: Stability | None = None,
    notes: Mapping[int, str] | None = None,
    title: str = "Name the concepts",
) -> str:
    """The whole page as HTML.

    With `maps` each picture has its map below it; `stability` says how far models of other seeds find each concept
    again. `notes` are those of a former sheet.
    """
    shown = []
    for concept in concepts:
        rows = [each.case.row for each in concept.prototypes]
        files = pictures(rows)
        heat = None if maps is None else maps(rows, concept.index)
        overlays = (
            [""] * len(rows)
            if heat is None
            else [data_uri(overlay_jpeg(*pair)) for pair in zip(files, heat, strict=True)]
        )
        images = zip(concept.prototypes, map(data_uri, files), overlays, strict=True)
        shown.append(
            {
                "concept": concept,
                "images": list(images),
                "value": "" if is_unnamed(concept.name) else concept.name,
                "note": (notes or {}).get(concept.index, ""),
            }
        )
    return render(
        "naming.html",
        title=title,
        shown=shown,
        cases=len(memory),
        effective=effective_concepts(memory.presence),
        stability=stability,
        mapped=maps is not None,
        patients=len(np.unique(memory.group)),
        longest=LONGEST,
        sheet={"file": SHEET_FILE, "model": memory.model},
    )


def name_run(model: str | Path, sheet: str | Path) -> list[Naming]:
    """Name the concepts of a run or a saved model, and write the card of a run anew; gives those that changed.

    Concepts that were learned from labels keep their names, by which evaluation finds the labels.
    """
    run = Run(model)
    refuse_links(model)
    if run.data_file.is_file():
        check_unlabelled(model)
    changed = name_concepts(model, sheet)
    if run.card_file.is_file():
        write_card(run, run.scores)
    return changed
