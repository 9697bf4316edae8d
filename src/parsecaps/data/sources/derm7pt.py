"""Derm7pt: dermoscopic images with the seven-point checklist; nevus against melanoma."""

from collections import Counter
from pathlib import Path

from parsecaps.data.cases import (
    SKIN_CLASSES,
    SKIN_CONCEPTS,
    Case,
    DataSet,
    Problem,
    SkinCriteria,
    Split,
    read_skin_concepts,
)
from parsecaps.data.spreadsheets import CaseList, Table, read_table
from parsecaps.files.writing import Listing

_INDEX_FILES: dict[str, Split] = {"train_indexes.csv": "train", "valid_indexes.csv": "val", "test_indexes.csv": "test"}
_TYPICAL = {"absent": (0.0, 0.0), "typical": (1.0, 0.0), "atypical": (0.0, 1.0)}
_REGULAR = {"absent": (0.0, 0.0), "regular": (1.0, 0.0), "irregular": (0.0, 1.0)}
_CRITERIA: SkinCriteria = {
    "pigment_network": (("typical pigment network", "atypical pigment network"), _TYPICAL),
    "streaks": (("regular streaks", "irregular streaks"), _REGULAR),
    "dots_and_globules": (("regular dots and globules", "irregular dots and globules"), _REGULAR),
    "blue_whitish_veil": (("blue-whitish veil",), {"absent": (0.0,), "present": (1.0,)}),
}


def recognise(path: Path) -> Path | None:
    """The folder of the release: the one with `meta/meta.csv`, which may lie in a folder release_v0."""
    folders = (path, path / "release_v0")
    return next((folder for folder in folders if (folder / "meta" / "meta.csv").is_file()), None)


def read_clinical(path: str) -> DataSet:
    """List the clinical photographs of the same cases, with the concepts that the dermoscopic images have."""
    return read(path, "clinic")


def read(path: str, column: str = "derm") -> DataSet:
    """List the dermoscopic images of nevi and melanomas with their official splits; or those of another column."""
    root = recognise(Path(path))
    if root is None:
        raise FileNotFoundError(f"{path} has no meta/meta.csv; give the folder release_v0")
    file = root / "meta" / "meta.csv"
    table = read_table(file, required=("case_num", "diagnosis", *_CRITERIA, column), others=True)
    splits, problems = _splits(table)
    found, listing = CaseList(file, [*table.problems, *problems]), Listing()
    twice = {problem.row for problem in problems if problem.file == str(file)}
    patients: dict[Path, str] = {}
    left_out: Counter[str] = Counter()
    repeated = 0
    for row in table.rows:
        diagnosis, patient, written = (row.cells[name].strip() for name in ("diagnosis", "case_num", column))
        label = _label(diagnosis)
        if label is None and diagnosis:
            left_out[diagnosis] += 1
            continue
        concepts, wrong = read_skin_concepts(row.cells, _CRITERIA)
        image = listing.find(root / "images" / written) if written else None
        blank = {"case_num": patient, "the diagnosis": diagnosis}
        wrong += [f"{name} is blank; download the table again" for name, cell in blank.items() if not cell]
        if image is None:
            wrong.append(f"image images/{written or '(blank)'} is missing; put it there or remove the row")
        found.refuse(row.number, *wrong)
        if wrong or label is None or image is None or row.number in twice:
            continue
        repeated += image in patients
        patient = patients.setdefault(image, patient)
        split = splits.get(row.position)
        found.cases.append(Case(image, label, patient, concepts=concepts, split=split, row=row.number))
    notes = ["Derm7pt does not name patients: each case counts as its own patient"]
    if left_out:
        listed = ", ".join(f"{name} {count}" for name, count in sorted(left_out.items()))
        notes.append(f"{left_out.total()} cases are neither nevus nor melanoma and left out: {listed}")
    if repeated:
        notes.append(f"{repeated} cases have the image of another case and count as the same patient")
    if unplaced := sum(case.split is None for case in found.cases):
        notes.append(f"{unplaced} cases are in none of {', '.join(_INDEX_FILES)}: they have no official split")
    return DataSet("derm7pt", root, SKIN_CLASSES, SKIN_CONCEPTS, found.cases, found.problems, notes)


def _label(diagnosis: str) -> int | None:
    """Nevus 0, melanoma 1, None for what the task leaves out.

    >>> [_label(word) for word in ("clark nevus", "melanoma (in situ)", "melanoma metastasis", "melanosis")]
    [0, 1, None, None]
    """
    words = diagnosis.casefold()
    if "nevus" in words:
        return 0
    return 1 if words.startswith("melanoma") and "metastasis" not in words else None


def _splits(meta: Table) -> tuple[dict[int, Split], list[Problem]]:
    """The official split of each row of the table, counted from 0."""
    origin: dict[int, str] = {}
    problems: list[Problem] = []
    numbers = {row.position: row.number for row in meta.rows}
    for name in _INDEX_FILES:
        file = meta.path.with_name(name)
        if not file.is_file():
            problems.append(Problem(str(file), None, "the file is missing, so its split is unknown; download it again"))
            continue
        table = read_table(file, required=("indexes",), others=True)
        problems += table.problems
        for row in table.rows:
            text = row.cells["indexes"].strip()
            if not text.isdecimal() or int(text) >= meta.num_rows:
                reason = f"index {text!r} is not a row of meta.csv, 0 to {meta.num_rows - 1}; download it again"
                problems.append(Problem(str(file), row.number, reason))
            elif int(text) in origin:
                reason = f"the row is in {origin[int(text)]} and in {name}; remove it from one"
                problems.append(Problem(str(meta.path), numbers.get(int(text)), reason))
            else:
                origin[int(text)] = name
    return {row: _INDEX_FILES[name] for row, name in origin.items()}, problems
