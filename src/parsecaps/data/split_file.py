"""A division as a file: a small CSV that a person can read and edit, and how its rows name the cases of a data set."""

import csv
import hashlib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from parsecaps.data.cases import SPLITS, Case, DataSet, Problem, Split
from parsecaps.data.tables import read_table, text_cell
from parsecaps.files.writing import write_atomically

Division = list[Split | None]
Key = tuple[str, int | None]  # how a split file names a case: the image, and the frame where there are several
COLUMNS = ("image", "frame", "patient", "class", "split")
_NUMBER = re.compile("[0-9]{1,9}")


def write_split(
    path: str | Path,
    data: DataSet,
    division: Division,
    *,
    more: Mapping[str, Sequence[str]] | None = None,
    private: bool = False,
) -> None:
    """Write a division as CSV, one row per case; a blank split means that the case takes no part.

    `more` columns, with a text for each case, may follow; `read_split` passes over them.
    """
    more = more or {}
    with write_atomically(path, private=private) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*COLUMNS, *more])
        for i, (part, case) in enumerate(zip(division, data.cases, strict=True)):
            frame = "" if case.frame is None else case.frame
            label = data.classes[case.label] if case.label >= 0 else ""
            texts = (
                text_cell(text) for text in (case.patient, label, part or "", *(each[i] for each in more.values()))
            )
            writer.writerow([text_cell(relative_name(data, case)), frame, *texts])


def read_split(path: str | Path, data: DataSet) -> tuple[Division, list[Problem]]:
    """Read a division back: from the columns `image`, `split` and, where files hold several images, `frame`.

    A case that the file does not name takes no part, which is a problem; so is a row that names no case.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; write one with parsecaps data split")
    table = read_table(path, required=("image", "split"), optional=COLUMNS, others=True)
    problems = list(table.problems)
    rows = {case_key(data, case): i for i, case in enumerate(data.cases)}
    division: Division = [None] * len(data)
    named: dict[int, int] = {}
    for number, _, written in table.rows:
        cells = {name: cell.strip() for name, cell in written.items()}
        frame = cells.get("frame", "")
        if frame and not _NUMBER.fullmatch(frame):
            problems.append(Problem(str(path), number, f"frame is {frame!r}; write a number from 0, or nothing"))
            continue
        key = row_key(cells)
        part = next((split for split in SPLITS if split == cells["split"].lower()), None)
        if key not in rows:
            problems.append(Problem(str(path), number, f"{cells['image']} is not in {data.root}; remove the row"))
        elif cells["split"] and part is None:
            known = ", ".join(SPLITS)
            problems.append(Problem(str(path), number, f"split is {cells['split']!r}; write {known} or nothing"))
        elif rows[key] in named:
            first = named[rows[key]]
            problems.append(Problem(str(path), number, f"{cells['image']} is in row {first} already; keep one"))
        else:
            named[rows[key]] = number
            division[rows[key]] = part
    if unnamed := [i for i in range(len(data)) if i not in named]:
        example = relative_name(data, data.cases[unnamed[0]])
        are = "case is not named" if len(unnamed) == 1 else "cases are not named"
        reason = f"{len(unnamed):,} {are}, {example} for one; add what is missing, with a blank split to leave it out"
        problems.append(Problem(str(path), None, reason))
    return division, problems


def split_keys(path: str | Path) -> set[Key]:
    """The cases that a split file names."""
    rows = read_table(Path(path), required=("image", "split"), optional=COLUMNS, others=True).rows
    return {row_key(row.cells) for row in rows}


def case_key(data: DataSet, case: Case) -> Key:
    """How a split file names a case."""
    return _plain(relative_name(data, case)), case.frame


def row_key(cells: Mapping[str, str]) -> Key:
    """The case that a row of a split file names, whether its image is written as on disk or as a safe cell."""
    frame = cells.get("frame", "").strip()
    return _plain(cells["image"].strip()), int(frame) if _NUMBER.fullmatch(frame) else None


def _plain(image: str) -> str:
    return PurePosixPath(text_cell(image).strip().replace("\\", "/")).as_posix()


def split_hash(data: DataSet, division: Division) -> str:
    """Twelve characters that stand for a division, whatever the order of the cases; saved with every result."""
    lines = sorted(
        f"{relative_name(data, c)}#{c.frame}\t{c.patient}\t{part}" for part, c in zip(division, data.cases, strict=True)
    )
    return hashlib.sha256("\n".join(lines).encode(errors="surrogatepass")).hexdigest()[:12]


def relative_name(data: DataSet, case: Case) -> str:
    """The image's path below the root of the data set, or its whole path; with forward slashes on every system.

    It is the same from whatever folder the data set is opened, and however its path is written.
    """
    root = Path(os.path.abspath(data.root.parent if data.root.is_file() else data.root))
    image = Path(os.path.abspath(case.image))
    return image.relative_to(root).as_posix() if image.is_relative_to(root) else image.as_posix()
