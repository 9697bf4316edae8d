"""Names for concepts that a model found by itself: from a clinician's sheet into the model.

The sheet (`naming_page`) is a page to look at and to write on; what it gives back is a CSV with the columns
`concept` (the number, from 1), `name`, `note` and `model`. A blank name leaves a concept as it is called.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from parsecaps.data.spreadsheets import read_table
from parsecaps.discovery.discover import Discovery, check_unlabelled
from parsecaps.evaluation import write_card
from parsecaps.explain.case_memory import THUMBNAILS_FILE, read_thumbnails
from parsecaps.files.hub_download import is_hub_name, parse_hub_name
from parsecaps.files.writing import refuse_links, write_text
from parsecaps.model import BUNDLE_FILE, Model, find_model_folder, is_unnamed
from parsecaps.models.pretrained import weights_digest
from parsecaps.report.pages import render
from parsecaps.report.pictures import data_uri, overlay_jpeg
from parsecaps.run import Run

Pictures = Callable[[Sequence[int]], list[bytes]]  # rows of the memory -> JPEG files


SHEET_FILE = "concept-names.csv"
LONGEST = 60  # characters of a name


@dataclass(frozen=True)
class Naming:
    """A concept, counted from 0, with its name before and after, and what the clinician noted."""

    index: int
    before: str
    name: str
    note: str


def read_names(path: str | Path, model: Model) -> list[Naming]:
    """The names that a sheet gives to concepts of this model; refused in one line where something is wrong with it."""
    path = Path(path)
    table = read_table(path, required=("concept", "name"), optional=("note", "model"))
    if table.problems:
        raise ValueError(str(table.problems[0]))
    names, own = list(model.concepts), weights_digest(model.network)
    found: dict[int, Naming] = {}
    for row in table.rows:
        place = f"{path}, row {row.number}"
        if (digest := row.cells.get("model", "").strip()) and digest != own:
            raise ValueError(f"{place}: the sheet is of another model; make one for this model")
        text = row.cells["concept"].strip()
        if not text.isdecimal() or not 1 <= int(text) <= len(names):
            raise ValueError(f"{place}: concept is {text!r}; write a number from 1 to {len(names)}")
        index = int(text) - 1
        if index in found:
            raise ValueError(f"{place}: concept {text} has a row already; keep one of them")
        name, note = (" ".join(row.cells.get(column, "").split()) for column in ("name", "note"))
        if len(name) > LONGEST or not name.isprintable():
            raise ValueError(f"{place}: the name has {len(name)} characters; use up to {LONGEST} that can be printed")
        found[index] = Naming(index, names[index], name or names[index], note)
    after = [found[i].name if i in found else name for i, name in enumerate(names)]
    first: dict[str, int] = {}
    for i, name in enumerate(after):
        if (other := first.setdefault(name.casefold(), i)) != i:
            raise ValueError(f"{path}: concepts {other + 1} and {i + 1} are both called {name!r}; name them apart")
    return [found[i] for i in sorted(found)]


def read_notes(run: Run) -> dict[int, str]:
    """What the clinician noted of each concept, counted from 0, in the sheet that the run keeps, if any."""
    path = run.folder / SHEET_FILE
    if not path.is_file():
        return {}
    rows = read_table(path, required=("concept", "name"), optional=("note", "model")).rows
    return {int(row.cells["concept"]) - 1: " ".join(row.cells.get("note", "").split()) for row in rows}


def name_concepts(place: str | Path, sheet: str | Path) -> list[Naming]:
    """Write the names of a sheet into a model and its notes into the run; gives the concepts that changed."""
    if is_hub_name(place):
        raise ValueError(f"{parse_hub_name(place)} is on the hub: its concepts cannot be named here; give a folder")
    folder = find_model_folder(place)
    model = Model.load(folder, "cpu")
    namings = read_names(sheet, model)
    concepts = list(model.concepts)
    for naming in namings:
        concepts[naming.index] = naming.name
    stored = json.loads((folder / BUNDLE_FILE).read_text(encoding="utf-8"))
    written = Path(sheet).read_text(encoding="utf-8-sig")
    if (run := model.run) is not None:
        write_text(run.folder / SHEET_FILE, written)
    write_text(folder / BUNDLE_FILE, json.dumps({**stored, "concepts": concepts}, indent=2) + "\n")
    return [naming for naming in namings if naming.name != naming.before]


def naming_page(found: Discovery, pictures: Pictures, notes: Mapping[int, str]) -> str:
    """The whole page as HTML; `notes` are those of a former sheet."""
    shown = []
    for concept in found.concepts:
        rows = [each.case.row for each in concept.prototypes]
        files = pictures(rows)
        overlays = map(overlay_jpeg, files, found.maps(rows, concept.index))
        images = zip(concept.prototypes, map(data_uri, files), map(data_uri, overlays), strict=True)
        value, note = "" if is_unnamed(concept.name) else concept.name, notes.get(concept.index, "")
        shown.append({"concept": concept, "images": list(images), "value": value, "note": note})
    return render(
        "naming.html",
        title=f"Name the concepts of {found.run.resolve().name}",
        shown=shown,
        cases=len(found.memory),
        effective=found.effective,
        stability=found.stability,
        patients=len(np.unique(found.memory.group)),
        longest=LONGEST,
        sheet={"file": SHEET_FILE, "model": found.memory.model},
    )


def naming_sheet(found: Discovery) -> str:
    """The page on which a clinician names the concepts; it holds pictures of training cases."""
    run = Run(found.run)
    return naming_page(found, partial(read_thumbnails, run.known_cases_folder / THUMBNAILS_FILE), read_notes(run))


def name_run(model: str | Path, sheet: str | Path) -> list[Naming]:
    """Name the concepts of a run or a saved model, and write the card of a run anew; gives those that changed."""
    run = Run(model)
    refuse_links(model)
    if run.data_file.is_file():
        check_unlabelled(model)
    changed = name_concepts(model, sheet)
    if run.card_file.is_file():
        write_card(run, run.scores)
    return changed
