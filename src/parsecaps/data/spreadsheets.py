"""Tables as people and spreadsheets write them, the cases of their rows, and all that is wrong with them.

Rows are numbered as a spreadsheet counts: the header is row 1, a blank line counts, a cell with line breaks is in one
row, and the line `sep=;` that some spreadsheets write and hide is not counted.
"""

import csv
import difflib
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from parsecaps.data.cases import Case, Problem
from parsecaps.files.writing import visible

TABLE_SUFFIXES = (".csv", ".tsv")
NOTE = "note:"  # before the name of a column that is for people only
_MOST_BYTES = 2**28  # a table is read as a whole: some million rows
_SEPARATORS = (",", ";", "\t")
_QUOTES = "\"'`\u2018\u2019\u201c\u201d\u201e"  # straight and typographic
_FORMULA = re.compile(r"(^|;)(?=\s*[=+\-@\uff1d\uff0b\uff0d\uff20])")  # the last four are the same in full width
_LONGEST = 10_000  # characters of a text in a cell; the csv module reads no more than 131,072
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)?")
_DATE = re.compile(r"\d{1,4}[-./]\d{1,2}([-./]\d{1,4})?|\d{1,2}[-. ]?[A-Za-z]{3}([-. ]?\d{2,4})?")


class Row(NamedTuple):
    """A row of a table: its number in a spreadsheet, its place from 0 among the rows, and its cells as written."""

    number: int
    position: int
    cells: dict[str, str]


class Table(NamedTuple):
    """The known columns, the readable rows, the problems of the others, and the number of all rows but blank ones."""

    path: Path
    columns: tuple[str, ...]
    rows: list[Row]
    problems: list[Problem]
    num_rows: int


def read_table(
    path: Path,
    *,
    required: Sequence[str],
    optional: Sequence[str] = (),
    prefix: str | None = None,
    others: bool = False,
) -> Table:
    """Read a table in UTF-8, separated by commas, semicolons or tabs.

    Columns are matched without regard to case, spaces and quotes around them; one that begins with `prefix` is taken as
    it is, one that begins with `note:` ignored. Any other column is a problem, unless `others` are allowed. Without all
    of the `required` columns there are no rows.
    """
    known = {name.casefold(): name for name in (*required, *optional)}
    records = _records(path, known)
    filled = [(number, cells) for number, cells in enumerate(records, 1) if any(cell.strip() for cell in cells)]
    if not filled:
        return Table(path, (), [], [Problem(str(path), None, "the table is empty; write a header and rows")], 0)
    (header_row, header), *body = filled
    columns, wrong = _columns(header, body, known, prefix, others)
    found = CaseList(path)
    found.refuse(header_row, *wrong)
    missing = [name for name in required if name not in columns.values()]
    lost = f"so none of the {len(body)} rows can be read; add it to the header"
    found.refuse(header_row, *(f"column {name!r} is missing, {lost}" for name in missing))
    if not body:
        found.refuse(None, "the table has a header but no rows; add them")
    rows = []
    needed = max(place for place, cell in enumerate(header, 1) if cell.strip())
    for position, (number, cells) in enumerate(body):
        if len(cells) < needed or any(cell.strip() for cell in cells[len(header) :]):
            reason = f"the row has {len(cells)} cells and the header {needed}; check quotes and separators"
            found.refuse(number, reason)
        elif not missing:
            rows.append(Row(number, position, {name: cells[place] for place, name in columns.items()}))
    return Table(path, tuple(columns.values()), rows, found.problems, len(body))


def text_cell(text: str) -> str:
    r"""A text of someone else's (a name, a patient, a class, an error) as a cell of a CSV file.

    It stays on one line, and what a spreadsheet would run as a formula gets an apostrophe: at the start, and after a
    semicolon, where spreadsheets of many countries begin another cell.

    >>> print(text_cell("=1+1"), text_cell("a\rb"), text_cell(text_cell("x;=1+1")))
    '=1+1 a\x0db x;'=1+1
    """
    cell = _FORMULA.sub(r"\1'", visible(text))
    return cell if len(cell) <= _LONGEST else f"{cell[: _LONGEST - 1]}\u2026"


class CaseList:
    """The cases and problems of one table while its rows are read: a row is a case or has problems, never both."""

    def __init__(self, table: Path, problems: Sequence[Problem] = ()) -> None:
        self.table = table
        self.cases: list[Case] = []
        self.problems: list[Problem] = list(problems)
        self._rows: dict[tuple[Path, int | None], int | None] = {}

    def refuse(self, row: int | None, *reasons: str) -> None:
        """Say what is wrong with a row."""
        self.problems += [Problem(str(self.table), row, reason) for reason in reasons]

    def add(self, case: Case) -> None:
        """Take a case, or refuse it where its image is there already."""
        key = (case.image, case.frame)
        if key in self._rows:
            self.refuse(case.row, f"image {case.name} is already in row {self._rows[key]}; remove one of the rows")
        else:
            self._rows[key] = case.row
            self.cases.append(case)


def wrong_spelling(labels: Sequence[str]) -> dict[str, str]:
    """What is wrong with labels that differ only in case or spaces from a more frequent or earlier one.

    >>> wrong_spelling(["nevus", "Nevus", "nevus"])["Nevus"]
    "'Nevus' and 'nevus' differ only in case; write 'nevus'"
    """
    groups: dict[str, Counter[str]] = {}
    for label in labels:
        groups.setdefault(label.strip().casefold(), Counter())[label] += 1
    wrong = {}
    for spellings in groups.values():
        clean = Counter({label: count for label, count in spellings.items() if label == label.strip()})
        best = (clean or spellings).most_common(1)[0][0].strip()
        for label in spellings.keys() - {best}:
            if label.strip() == best:
                wrong[label] = f"{label!r} has spaces around it; write {best!r}"
            else:
                wrong[label] = f"{label!r} and {best!r} differ only in case; write {best!r}"
    return wrong


def _columns(
    header: list[str], body: list[tuple[int, list[str]]], known: dict[str, str], prefix: str | None, others: bool
) -> tuple[dict[int, str], list[str]]:
    """The name of each known column by its place, and what is wrong with the others."""

    def is_used(place: int) -> bool:
        return any(len(cells) > place and cells[place].strip() for _, cells in body)

    columns: dict[int, str] = {}
    wrong = []
    names = [*map(_tidy, header)]
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        places.setdefault(name.casefold(), []).append(place)
    missing = [name for name in known if name not in places]
    for place, name in enumerate(names):
        same = places[name.casefold()]
        prefixed = bool(prefix and re.match(rf"{re.escape(prefix)}\S", name))
        match = name if prefixed else known.get(name.casefold())
        if match is not None and len(same) == 1:
            columns[place] = match
        elif match is not None and same[0] == place:
            wrong.append(f"column {match!r} stands more than once ({' and '.join(map(_letter, same))}); keep one")
        elif match is None and not others and not name.startswith(NOTE) and (name or is_used(place)):
            wrong.append(_unknown(name, _letter(place), known, missing, prefix))
    return columns, wrong


def _unknown(name: str, letter: str, known: dict[str, str], missing: list[str], prefix: str | None) -> str:
    if not name:
        return f"column {letter} has no name; name it or remove it"
    if name.casefold().startswith("unnamed"):
        return f"column {letter} {name!r} had no name when a program wrote the table; name it or remove it"
    if _NUMBER.fullmatch(name) or _DATE.fullmatch(name):
        return f"column {letter} {name!r} is a number or a date where a name should be; name it or remove it"
    stem = prefix.rstrip(":") if prefix else ""
    if prefix and (meant := re.fullmatch(rf"{re.escape(stem)}s?\s*[:.;_ -]\s*(.*)", name, re.IGNORECASE)):
        rest = meant.group(1) or "<name>"
        return f"column {letter} {name!r} is not known; did you mean {prefix + rest!r}?"
    near = difflib.get_close_matches(name.casefold(), missing, n=1, cutoff=0.5)
    near = near or difflib.get_close_matches(name.casefold(), known, n=1, cutoff=0.78)
    listed = ", ".join([*known.values(), *([f"{prefix}<name>"] if prefix else [])])
    hint = f"did you mean {known[near[0]]!r}?" if near else f"known are {listed}; rename or remove it"
    return f"column {letter} {name!r} is not known; {hint}"


def _records(path: Path, known: dict[str, str]) -> list[list[str]]:
    """All lines of the table, blank ones too, each as its cells."""
    text = _text(path)
    first, _, rest = text.partition("\n")
    if declared := re.fullmatch(r'"?sep=([,;|\t])"?\r?', first, re.IGNORECASE):
        separator, text = declared.group(1), rest
    else:
        line = next((line for line in re.split(r"[\r\n]", text) if line.strip()), "")
        names = {each: [_tidy(cell).casefold() for cell in line.split(each)] for each in _SEPARATORS}
        separator = max(names, key=lambda each: (sum(map(known.__contains__, names[each])), len(names[each])))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    records: list[list[str]] = []
    try:
        records.extend(reader)
    except csv.Error as error:
        reason = f"{error}; a quote is probably not closed, correct it"
        raise ValueError(f"{path}, row {len(records) + 1}: {reason}") from None
    return records


def _text(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give a table that is there")
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise ValueError(f"{path} is {size:,} bytes long, above the limit of {_MOST_BYTES:,}; split it")
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        place = f"byte 0x{raw[error.start]:02x} at offset {error.start}, line {line}"
        raise ValueError(f"{path} is not UTF-8 ({place}); save it as 'CSV UTF-8'") from None
    if "\0" in text:
        raise ValueError(f"{path} is not a text table (NUL at offset {raw.index(0)}); save it as 'CSV UTF-8'")
    return text


def _tidy(cell: str) -> str:
    """A column's name without what surrounds it: spaces, quotes, a byte order mark."""
    return " ".join(cell.replace("\ufeff", "").split()).strip(_QUOTES + " ")


def _letter(place: int) -> str:
    from openpyxl.utils import get_column_letter  # once there is something to say

    return get_column_letter(place + 1)
