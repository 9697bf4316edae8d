"""Anyone's images in a table: `image`, `label`, and optionally patient, split, mask, frame, concepts and notes."""

import os
from dataclasses import replace
from pathlib import Path

from parsecaps.data.cases import SPLIT_WORDS, UNKNOWN, Case, DataSet
from parsecaps.data.tables import TABLE_SUFFIXES, CaseList, Row, read_table, wrong_spelling
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
    found, rows = CaseList(file, table.problems), _Rows(str(file.parent), columns)
    for row in table.rows:
        case, wrong = rows.read(row)
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


class _Rows:
    """Turns rows into cases whose label is still unknown, and says everything that is wrong with a row."""

    def __init__(self, root: str, concepts: tuple[str, ...]) -> None:
        self._root = root
        self._concepts = concepts
        self._listing = Listing()
        self._wrong: list[str] = []

    def read(self, row: Row) -> tuple[Case, list[str]]:
        self._wrong = []
        cells = {name: cell.strip() for name, cell in row.cells.items()}
        image = self._file("image", cells["image"])
        if not cells["image"]:
            self._wrong.append("the image is blank; write its path or remove the row")
        patient = cells["patient"] if "patient" in cells else Path(os.path.relpath(image, self._root)).as_posix()
        if not patient:
            self._wrong.append("the patient is blank; write an id, or remove the column if there are none")
        split = SPLIT_WORDS.get(cells.get("split", "").casefold())
        if split is None and cells.get("split"):
            self._wrong.append(f"split is {cells['split']!r}; write train, val or test, or leave it blank")
        frame = cells.get("frame", "")
        if frame and not (frame.isascii() and frame.isdecimal() and len(frame) < 10):
            self._wrong.append(f"frame is {frame!r}; write a whole number from 0, or leave it blank")
            frame = ""
        mask = self._file("mask", cells["mask"]) if cells.get("mask") else None
        case = Case(
            image,
            -1,
            patient,
            frame=int(frame) if frame else None,
            concepts=tuple(self._concept(column, cells[column]) for column in self._concepts),
            split=split,
            mask=mask,
            row=row.number,
        )
        return case, self._wrong

    def _file(self, column: str, written: str) -> Path:
        path = os.path.normpath(os.path.join(self._root, written))
        found = self._listing.find(path)
        if found is None and written:
            hint = "write / instead of \\" if "\\" in written else "correct the path or remove the row"
            self._wrong.append(f"{column} {written!r} is missing; {hint}")
        elif found is not None and str(found) != path:
            there = os.path.relpath(found, self._root)
            self._wrong.append(f"{column} {written!r} is {there!r} on disk; correct upper and lower case")
        return found or Path(path)

    def _concept(self, column: str, value: str) -> float:
        if value not in _VALUES:
            self._wrong.append(f"{column} is {value!r}; write 1 (present), 0 (absent) or leave it blank (unknown)")
        return _VALUES.get(value, UNKNOWN)
