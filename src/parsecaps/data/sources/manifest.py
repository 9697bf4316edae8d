"""Anyone's images in a table: `image`, `label`, and optionally patient, split, mask, frame, concepts and notes."""

import os
from dataclasses import replace
from pathlib import Path

from parsecaps.data.cases import SPLIT_WORDS, UNKNOWN, Case, DataSet
from parsecaps.data.spreadsheets import TABLE_SUFFIXES, CaseList, Row, read_table, wrong_spelling
from parsecaps.files.writing import Listing

IN_FOLDER = "manifest.csv"  # so called, it speaks for the folder that it lies in
REQUIRED = ("image", "label")
OPTIONAL = ("patient", "split", "mask", "frame")
CONCEPT = "concept:"
_VALUES = {"1": 1.0, "1.0": 1.0, "0": 0.0, "0.0": 0.0, "": UNKNOWN}


def recognise(path: Path) -> bool:
    """Whether the path is a table, or a folder with its manifest in it."""
    return (path.suffix.casefold() in TABLE_SUFFIXES and path.is_file()) or (path / IN_FOLDER).is_file()


def read(path: str) -> DataSet:
    """List the rows; relative paths start from the folder of the table, and a blank label is unknown (-1)."""
    file = Path(path)
    if file.is_dir():
        file /= IN_FOLDER
    table = read_table(file, required=REQUIRED, optional=OPTIONAL, prefix=CONCEPT)
    columns = tuple(column for column in table.columns if column.startswith(CONCEPT))
    misspelt = wrong_spelling([row.cells["label"] for row in table.rows if row.cells["label"].strip()])
    found, listing = CaseList(file, table.problems), Listing()
    for row in table.rows:
        case, wrong = _read_row(row, str(file.parent), columns, listing)
        if row.cells["label"] in misspelt:
            wrong.append(f"label {misspelt[row.cells['label']]}")
        found.refuse(row.number, *wrong)
        if not wrong:
            found.add(case)
    labels = {row.number: row.cells["label"].strip() for row in table.rows}
    classes = tuple(sorted({labels[case.row] for case in found.cases if case.row} - {""}))
    index = {name: label for label, name in enumerate(classes)} | {"": -1}
    cases = [replace(case, label=index[labels[case.row]]) for case in found.cases if case.row]
    notes = [] if "patient" in table.columns else ["without a column 'patient' each image counts as its own patient"]
    concepts = tuple(column.removeprefix(CONCEPT) for column in columns)
    return DataSet("manifest", file.parent, classes, concepts, cases, found.problems, notes)


def _read_row(row: Row, root: str, concepts: tuple[str, ...], listing: Listing) -> tuple[Case, list[str]]:
    """A case whose label is still unknown, and everything that is wrong with its row."""
    wrong: list[str] = []
    cells = {name: cell.strip() for name, cell in row.cells.items()}

    def find(column: str) -> Path:
        written = cells[column]
        path = os.path.normpath(os.path.join(root, written))
        found = listing.find(path)
        if found is None and written:
            hint = "write / instead of \\" if "\\" in written else "correct the path or remove the row"
            wrong.append(f"{column} {written!r} is missing; {hint}")
        elif found is not None and str(found) != path:
            there = os.path.relpath(found, root)
            wrong.append(f"{column} {written!r} is {there!r} on disk; correct upper and lower case")
        return found or Path(path)

    image = find("image")
    if not cells["image"]:
        wrong.append("the image is blank; write its path or remove the row")
    patient = cells["patient"] if "patient" in cells else Path(os.path.relpath(image, root)).as_posix()
    if not patient:
        wrong.append("the patient is blank; write an id, or remove the column if there are none")
    split = SPLIT_WORDS.get(cells.get("split", "").casefold())
    if split is None and cells.get("split"):
        wrong.append(f"split is {cells['split']!r}; write train, val or test, or leave it blank")
    frame = cells.get("frame", "")
    if frame and not (frame.isascii() and frame.isdecimal() and len(frame) < 10):
        wrong.append(f"frame is {frame!r}; write a whole number from 0, or leave it blank")
        frame = ""
    mask = find("mask") if cells.get("mask") else None
    for column in concepts:
        if cells[column] not in _VALUES:
            what = f"{column} is {cells[column]!r}"
            wrong.append(f"{what}; write 1 (present), 0 (absent) or leave it blank (unknown)")
    values = tuple(_VALUES.get(cells[column], UNKNOWN) for column in concepts)
    number = int(frame) if frame else None
    return Case(image, -1, patient, number, values, split, mask=mask, row=row.number), wrong
