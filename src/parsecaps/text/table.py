"""A table of reports in, the same table with concept columns out, and a second one with the evidence."""

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import IO

from parsecaps.data.sources import manifest
from parsecaps.data.tables import NOTE, text_cell
from parsecaps.files.writing import write_atomically
from parsecaps.text.finding import Findings, find_concepts
from parsecaps.text.lexicon import Lexicon, nearest
from parsecaps.types import Grid

EVIDENCE_COLUMNS = ("row", "concept", "value", "start", "end", "text", "reason")
PREFIX = manifest.CONCEPT
_FIRST_ROW = 2  # as a spreadsheet counts: row 1 has the names of the columns
_LONGEST_CELL = 10_000_000  # characters; the csv module alone stops at 131,072


@dataclass(slots=True)
class Counts:
    """In how many rows a concept is present, absent and unknown."""

    present: int = 0
    absent: int = 0
    unknown: int = 0


@dataclass(slots=True)
class TableSummary:
    """What was written: the rows, the counts of each concept, and the first rows for a look at them."""

    rows: int
    counts: dict[str, Counts]
    first: list[tuple[str, Findings]] = field(default_factory=list)

    def table(self) -> Grid:
        """In how many rows each concept is present, absent and unknown."""
        rows = [(name, *(f"{number:,}" for number in astuple(counts))) for name, counts in self.counts.items()]
        return Grid(f"{self.rows:,} rows", ("concept", "present", "absent", "unknown"), rows)


def annotate_table(
    csv_in: str | Path,
    column: str,
    lexicon: Lexicon,
    csv_out: str | Path,
    evidence_out: str | Path,
    *,
    progress: Callable[[int], None] | None = None,
    preview: int = 3,
) -> TableSummary:
    """Add `concept:<name>` columns (1, 0, blank) to a table by reading one of its columns, and write the evidence.

    A table of images (with a column `image`) comes out as a manifest: columns that training does not know, such as the
    texts, are kept as `note:<name>`.

    Rows are read and written one at a time; `progress` is called with the number of rows done. Both files appear
    complete or not at all, and the input is never written to.
    """
    csv_in, csv_out, evidence_out = Path(csv_in), Path(csv_out), Path(evidence_out)
    _check_paths(csv_in, csv_out, evidence_out)
    with ExitStack() as stack:
        rows = _rows(stack.enter_context(csv_in.open(encoding="utf-8-sig", newline="")), csv_in)
        header = next(rows, None)
        if header is None:
            raise ValueError(f"{csv_in} is empty; give a table whose first row names the columns")
        place = _place(header, column, lexicon, csv_in)
        table = csv.writer(stack.enter_context(write_atomically(csv_out)))
        evidence = csv.writer(stack.enter_context(write_atomically(evidence_out)))
        table.writerow([*_noted(header), *(PREFIX + name for name in lexicon.names)])
        evidence.writerow(EVIDENCE_COLUMNS)
        summary = TableSummary(0, {name: Counts() for name in lexicon.names})
        current: list[str] = []

        def texts() -> Iterator[str]:
            nonlocal current
            for current in rows:
                yield current[place]

        for number, findings in enumerate(find_concepts(texts(), lexicon), _FIRST_ROW):
            table.writerow([*current, *(_cell(value) for value in findings.values.values())])
            for found in findings.evidence:
                words = (text_cell(text) for text in (found.text, found.reason))
                evidence.writerow(
                    [number, text_cell(found.concept), _cell(found.value), found.start, found.end, *words]
                )
            _count(summary, current[place], findings, preview)
            if progress:
                progress(summary.rows)
    return summary


def _count(summary: TableSummary, text: str, findings: Findings, preview: int) -> None:
    summary.rows += 1
    if summary.rows <= preview:
        summary.first.append((text, findings))
    for name, value in findings.values.items():
        counts = summary.counts[name]
        if math.isnan(value):
            counts.unknown += 1
        elif value:
            counts.present += 1
        else:
            counts.absent += 1


def _cell(value: float) -> str:
    return "" if math.isnan(value) else str(int(value))


def _check_paths(csv_in: Path, csv_out: Path, evidence_out: Path) -> None:
    if not csv_in.is_file():
        raise FileNotFoundError(f"{csv_in} is missing; give a CSV file with a column of texts")
    for path in (csv_out, evidence_out):
        if path.resolve() == csv_in.resolve() or (path.exists() and path.samefile(csv_in)):
            raise ValueError(f"{path} is the input and would be overwritten; choose another name for the output")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent} is not a folder; create it, or write {path.name} somewhere else")
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the name of a file in it")
    if csv_out.resolve() == evidence_out.resolve():
        raise ValueError(f"{csv_out} is named for both the table and the evidence; choose two names")


def _rows(file: IO[str], path: Path) -> Iterator[list[str]]:
    """Rows of equal length, blank lines left out; a short row (a spreadsheet drops trailing blanks) is filled up."""
    reader = csv.reader(file, strict=True)
    longest = csv.field_size_limit(_LONGEST_CELL)
    width = None
    number = 0
    try:
        for row in reader:
            if not row:
                continue
            number += 1
            width = width or len(row)
            if len(row) > width:
                raise ValueError(
                    f"{path}, row {number}: {len(row)} cells, but {width} columns; put quotes around a text with commas"
                )
            yield row + [""] * (width - len(row))
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise ValueError(
            f"{path} is not UTF-8 (byte 0x{byte:02x} after row {number}); save it as 'CSV UTF-8', or convert it with "
            f"iconv -f windows-1252 -t utf-8"
        ) from None
    except csv.Error as error:
        raise ValueError(f"{path}, row {number + 1}: not CSV ({error}); save the table as CSV again") from None
    finally:
        csv.field_size_limit(longest)


def _noted(header: Sequence[str]) -> list[str]:
    """The names of the columns; in a table of images, those that training does not know become notes.

    >>> _noted(["image", "label", "report"])
    ['image', 'label', 'note:report']
    """
    if "image" not in header:
        return list(header)
    known = {*manifest.REQUIRED, *manifest.OPTIONAL}
    return [name if name in known or name.startswith((PREFIX, NOTE)) else NOTE + name for name in header]


def _place(header: Sequence[str], column: str, lexicon: Lexicon, path: Path) -> int:
    """Where the column of texts is; a column that would be written must not be there yet."""
    if header.count(column) > 1:
        raise ValueError(f"{path} has {header.count(column)} columns {column!r}; rename all but one")
    if column not in header:
        semicolons = len(header) == 1 and ";" in header[0]
        hint = (
            "; its columns are separated by semicolons, save it with commas"
            if semicolons
            else nearest(column, [*header])
        )
        raise ValueError(f"{path} has no column {column!r}{hint}")
    for name in lexicon.names:
        if PREFIX + name in header:
            raise ValueError(f"{path} already has a column {PREFIX + name!r}; remove it or rename it")
    return header.index(column)
