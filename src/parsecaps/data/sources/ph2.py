"""PH2: 200 dermoscopic images with lesion masks, nevus (common or atypical) against melanoma; with Derm7pt: PH2D7."""

import re
from dataclasses import replace
from pathlib import Path

from parsecaps.data.cases import SKIN_CLASSES, SKIN_CONCEPTS, Case, DataSet, SkinCriteria, read_skin_concepts
from parsecaps.data.reader_pool import call_or_name
from parsecaps.data.sources import derm7pt
from parsecaps.data.spreadsheets import CaseList
from parsecaps.files.writing import Listing

TABLES = ("PH2_dataset.xlsx", "PH2_dataset.txt")
IMAGES = "PH2 Dataset images"
_MARKS = ("common nevus", "atypical nevus", "melanoma")  # in the order of the codes 0, 1, 2 of the text table
_CODE = "clinical diagnosis"
_NOT_A_SHEET = "is not a spreadsheet; download it again or use PH2_dataset.txt"
# For each criterion, what a value says about its concepts. Streaks are only said to be present or absent: a present
# one may be regular or irregular, so both are unknown.
_TYPICAL = {"t": (1.0, 0.0), "at": (0.0, 1.0), "a": (0.0, 0.0)}
_CRITERIA: SkinCriteria = {
    "pigment network": (("typical pigment network", "atypical pigment network"), _TYPICAL),
    "dots/globules": (("regular dots and globules", "irregular dots and globules"), _TYPICAL),
    "streaks": (("regular streaks", "irregular streaks"), {"a": (0.0, 0.0), "p": ()}),
    "blue-whitish veil": (("blue-whitish veil",), {"a": (0.0,), "p": (1.0,)}),
}
Records = list[tuple[int, list[str]]]


def recognise(path: Path) -> Path | None:
    """The table of annotations, there or in the folder PH2Dataset; the spreadsheet before the text."""
    tables = (folder / name for folder in (path, path / "PH2Dataset") for name in TABLES)
    return next((table for table in tables if table.is_file()), None)


def read(path: str) -> DataSet:
    """List the images that the table names."""
    table = recognise(Path(path))
    if table is None:
        raise FileNotFoundError(f"{path} has no {' or '.join(TABLES)}; give the folder PH2Dataset")
    header, rows = _split_header(table, _records(table))
    found, listing, unmasked = CaseList(table), Listing(), 0
    for number, cells in rows:
        if len(cells) != len(header):
            found.refuse(number, f"the row has {len(cells)} cells and the header {len(header)}; correct the row")
            continue
        values = {column: cell for column, cell in zip(header, cells, strict=True) if column}
        label, concepts, wrong = _annotation(values)
        name = values["image name"]
        folder = table.parent / IMAGES / name
        written = folder / f"{name}_Dermoscopic_Image" / f"{name}.bmp"
        image = listing.find(written) if name else None
        mask = listing.find(folder / f"{name}_lesion" / f"{name}_lesion.bmp") if name else None
        if not name:
            wrong.append("the image name is blank; write it")
        elif image is None:
            wrong.append(f"image {written.relative_to(table.parent)} is missing; put it there or remove the row")
        found.refuse(number, *wrong)
        if not wrong and image is not None:
            unmasked += mask is None
            found.add(Case(image, label, name, concepts=concepts, mask=mask, row=number))
    if not rows:
        found.refuse(None, "the table has no rows; download it again")
    notes = ["PH2 does not name patients: each image counts as its own patient"]
    if unmasked:
        notes.append(f"{unmasked} images have no lesion mask")
    return DataSet("ph2", table.parent, SKIN_CLASSES, SKIN_CONCEPTS, found.cases, found.problems, notes)


def _annotation(values: dict[str, str]) -> tuple[int, tuple[float, ...], list[str]]:
    wrong = []
    if _CODE in values:
        code = values[_CODE]
        marked = [int(code)] if code in {"0", "1", "2"} else []
        if not marked:
            known = "0 (common nevus), 1 (atypical nevus) or 2 (melanoma)"
            wrong.append(f"the clinical diagnosis is {code!r}; write {known}")
    else:
        marked = [code for code, name in enumerate(_MARKS) if values[name]]
        odd = [f"{name} is {values[name]!r}" for name in _MARKS if values[name].casefold() not in {"", "x"}]
        if odd or len(marked) != 1:
            what = "; ".join(odd) or f"{len(marked)} diagnoses are marked"
            wrong.append(f"{what}; mark one of {', '.join(_MARKS)} with X")
    concepts, odd = read_skin_concepts(values, _CRITERIA)
    return int(marked == [2]), concepts, [*wrong, *odd]


def _split_header(table: Path, records: Records) -> tuple[list[str], Records]:
    for place, (_, cells) in enumerate(records):
        bare = (re.sub(r"\(.*?\)", " ", cell, flags=re.DOTALL) for cell in cells)  # a legend may follow in brackets
        names = [" ".join(cell.split()).casefold() for cell in bare]
        names = ["image name" if name == "name" else name for name in names]
        diagnosis = _CODE in names or set(_MARKS) <= set(names)
        if "image name" in names and diagnosis and set(_CRITERIA) <= set(names):
            return names, records[place + 1 :]
    columns = ", ".join(["Image Name", *_CRITERIA])
    raise ValueError(f"{table} has no header with {columns} and a diagnosis; download it again")


def _records(table: Path) -> Records:
    """The rows of the sheet that are not blank, or the lines with `||` or the name of an image."""
    if table.suffix == ".xlsx":
        rows = call_or_name(sheet_cells, table, _NOT_A_SHEET)
        return [(number, cells) for number, cells in enumerate(rows, 1) if any(cells)]
    try:
        lines = table.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        lines = table.read_text(encoding="latin-1").splitlines()
    found = [(number, line.strip()) for number, line in enumerate(lines, 1) if re.search(r"\|\||\bIMD\d", line)]
    return [(number, [cell.strip() for cell in re.split(r"\|\|?", line.strip("|"))]) for number, line in found]


def sheet_cells(table: Path) -> list[list[str]]:
    """The cells of the first sheet, row by row, as texts."""
    import openpyxl

    rows = openpyxl.load_workbook(table, data_only=True).worksheets[0].values
    return [[("" if cell is None else str(cell)).strip() for cell in row] for row in rows]


def recognise_both(path: Path) -> bool:
    """Whether one folder holds PH2 and Derm7pt."""
    return all(_find_both(str(path)))


def read_both(path: str) -> DataSet:
    """Join PH2 and Derm7pt; `path` is a folder that holds both, or the two folders with a comma between them."""
    of_ph2, of_derm7pt = _find_both(path)
    if of_ph2 is None or of_derm7pt is None:
        missing = "PH2 (PH2_dataset.xlsx or .txt)" if of_ph2 is None else "Derm7pt (meta/meta.csv)"
        advice = "give a folder that holds both, or both folders with a comma between them"
        raise FileNotFoundError(f"{path} does not hold {missing}; {advice}")
    parts = [read(str(of_ph2)), derm7pt.read(str(of_derm7pt))]
    cases = [replace(case, patient=f"{part.source}:{case.patient}") for part in parts for case in part.cases]
    return DataSet(
        "ph2d7",
        Path(path) if Path(path).is_dir() else parts[0].root,
        SKIN_CLASSES,
        SKIN_CONCEPTS,
        cases,
        [problem for part in parts for problem in part.problems],
        [f"{part.source}: {note}" for part in parts for note in part.notes],
    )


def _find_both(path: str) -> tuple[Path | None, Path | None]:
    """Where PH2 and Derm7pt are, among the given folders and the folders directly in them."""
    given = [Path(path)] if Path(path).is_dir() else [Path(part.strip()) for part in path.split(",")]
    folders = [folder for folder in given if folder.is_dir()]
    folders += [child for folder in list(folders) for child in sorted(folder.iterdir()) if child.is_dir()]
    first, second = (next(filter(known, folders), None) for known in (recognise, derm7pt.recognise))
    return first, second
