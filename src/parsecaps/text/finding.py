"""Concepts from texts: what each text says of each concept, with the words that say it; and tables of texts."""

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import IO, NamedTuple

from parsecaps.data.cases import UNKNOWN
from parsecaps.data.sources import manifest
from parsecaps.data.spreadsheets import NOTE, text_cell
from parsecaps.files.writing import write_atomically
from parsecaps.text.clauses import clauses, stretches
from parsecaps.text.lexicon import Concept, Lexicon, nearest
from parsecaps.text.negation import Statement, statements
from parsecaps.text.phrases import NounPhrase, count_phrases, lexicon_of, noun_phrases
from parsecaps.text.tokens import PieceReader
from parsecaps.types import Grid, silent

EVIDENCE_COLUMNS = ("row", "concept", "value", "start", "end", "text", "reason")
PREFIX = manifest.CONCEPT
_FIRST = 3  # rows that a summary keeps
_UNLISTED = 5  # phrases that it names
_FIRST_ROW = 2  # as a spreadsheet counts: row 1 has the names of the columns
_LONGEST_CELL = 10_000_000  # characters; the csv module alone stops at 131,072
_OTHER_KIND = "another kind is stated"
_KINDS = {1.0: "present", 0.0: "absent"}  # all other values are unknown


class Finding(NamedTuple):
    """What one span of a text says of one concept: 1, 0 or NaN, and why."""

    concept: str
    value: float
    start: int
    end: int
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class Findings:
    """The value of every concept of the lexicon in one text (1, 0, NaN = unknown), and the evidence for each."""

    values: dict[str, float]
    evidence: tuple[Finding, ...]
    unlisted: tuple[NounPhrase, ...] = ()  # in which the lexicon has no word

    def spans(self) -> list[tuple[int, int, str]]:
        """Where the text says that a concept is present, absent or unknown: start, end and which of these."""
        shown = (each for each in self.evidence if each.reason != _OTHER_KIND)
        return [(each.start, each.end, _KINDS.get(each.value, "unknown")) for each in shown]

    def named(self) -> dict[str, list[str]]:
        """The concepts that are present, absent and unknown, of the last only those that the text speaks of."""
        stated = {each.concept for each in self.evidence}
        kinds: dict[str, list[str]] = {"present": [], "absent": [], "unknown": []}
        for name, value in self.values.items():
            if value in _KINDS or name in stated:
                kinds[_KINDS.get(value, "unknown")].append(name)
        return kinds


def find_concepts(texts: Iterable[str], lexicon: Lexicon) -> Iterator[Findings]:
    """Read texts one by one; spaCy is needed from the first on.

    >>> found = next(find_concepts(["Irregular streaks, no veil."], Lexicon.shipped("dermoscopy")))
    >>> found.values["irregular streaks"], found.values["regular streaks"], found.values["blue-whitish veil"]
    (1.0, 0.0, 0.0)
    >>> [(finding.text, finding.reason) for finding in found.evidence][0]
    ('no veil', 'negated')
    """
    reader = _reader(lexicon)
    for text in texts:
        pieces = reader.read(text)
        found = (clause for stretch in stretches(pieces, text) for clause in clauses(stretch))
        weighed = weigh([statement for clause in found for statement in statements(clause)], text, lexicon)
        yield replace(weighed, unlisted=tuple(noun_phrases(pieces, text)))


_reader = lru_cache(maxsize=4)(PieceReader)  # building one takes longer than reading a hundred texts


def weigh(stated: Sequence[Statement], text: str, lexicon: Lexicon) -> Findings:
    """The value of each concept from all statements of a text (docs/concepts.md, "What is decided how")."""
    values = {concept.name: UNKNOWN for concept in lexicon.concepts}
    if not stated:
        return Findings(values, ())
    evidence: list[Finding] = []
    present: dict[str, Statement] = {}
    open_ones: list[tuple[Concept, bool]] = []
    for concept in lexicon.concepts:
        about = [s for s in stated if _is_about(s, concept)]
        asserted = [s for s in about if s.value == 1 and _names(s, concept)]
        denied = [s for s in about if s.value == 0 and not _only_a_part(s, stated)]
        unkinded = [s for s in about if s.value == 1 and not _names(s, concept) and not s.heading]
        wholly_denied = [s for s in denied if not _names(s, concept)]
        contradicted = bool(denied) and (bool(asserted) or bool(wholly_denied and unkinded))
        if asserted and not denied:
            values[concept.name] = 1.0
            present[concept.name] = asserted[0]
        elif denied and not contradicted:
            values[concept.name] = 0.0
        elif not contradicted:
            open_ones.append((concept, any(s.reason == "uncertain" and _names(s, concept) for s in about)))
        evidence += [_finding(s, concept, text, contradicted) for s in about]
    for concept, in_doubt in open_ones:
        groups = (group for group in lexicon.exclusive if concept.name in group)
        other = next((present[name] for group in groups for name in group if name in present), None)
        if other is not None and not in_doubt:
            values[concept.name] = 0.0
            words = text[other.start : other.end]
            evidence.append(Finding(concept.name, 0.0, other.start, other.end, words, _OTHER_KIND))
    return Findings(values, tuple(evidence))


def _is_about(statement: Statement, concept: Concept) -> bool:
    """Is it about the concept itself, or about its noun without naming a kind?"""
    about_noun = concept.noun is not None and statement.meaning.noun == concept.noun and statement.kind is None
    return about_noun or _names(statement, concept)


def _names(statement: Statement, concept: Concept) -> bool:
    return concept.name in (statement.kind, statement.meaning.concept)


def _only_a_part(denied: Statement, stated: Sequence[Statement]) -> bool:
    """A part is denied while another part, or the whole, is asserted: the thing itself is not denied."""
    part, noun = denied.meaning.part, denied.meaning.noun
    return part is not None and any(s.value == 1 and s.meaning.noun == noun and s.meaning.part != part for s in stated)


def _finding(statement: Statement, concept: Concept, text: str, contradicted: bool) -> Finding:
    value = UNKNOWN if statement.value is None else statement.value
    reason = statement.reason
    if value == 1 and not _names(statement, concept):
        value, reason = UNKNOWN, "kind not given"
    if contradicted:
        reason += ", contradicted"
    start, end = statement.start, statement.end
    return Finding(concept.name, value, start, end, text[start:end], reason)


@dataclass(slots=True)
class Counts:
    """In how many rows a concept is present, absent and unknown."""

    present: int = 0
    absent: int = 0
    unknown: int = 0


@dataclass(slots=True)
class TableSummary:
    """The number of rows, the counts of each concept, and the first rows with their findings."""

    rows: int
    counts: dict[str, Counts]
    first: list[tuple[str, Findings]] = field(default_factory=list)
    unlisted: Counter[str] = field(default_factory=Counter)  # in how many rows each phrase is that the lexicon lacks

    def add(self, text: str, findings: Findings) -> None:
        """Count a row."""
        self.rows += 1
        if len(self.first) < _FIRST:
            self.first.append((text, findings))
        for name, value in findings.values.items():
            counts, kind = self.counts[name], _KINDS.get(value, "unknown")
            setattr(counts, kind, getattr(counts, kind) + 1)
        self.unlisted += count_phrases([findings.unlisted])

    def table(self) -> Grid:
        """In how many rows each concept is present, absent and unknown."""
        rows = [(name, *(f"{number:,}" for number in astuple(counts))) for name, counts in self.counts.items()]
        return Grid(f"{self.rows:,} rows", ("concept", "present", "absent", "unknown"), rows)

    def lines(self) -> list[str]:
        """The most frequent phrases that the lexicon lacks."""
        most = ", ".join(f"{phrase} ({count:,})" for phrase, count in self.unlisted.most_common(_UNLISTED))
        return [f"not in the lexicon: {most}; --propose writes a lexicon of such phrases"] if most else []


def annotate_table(
    csv_in: str | Path,
    column: str,
    lexicon: Lexicon,
    csv_out: str | Path,
    evidence_out: str | Path,
    *,
    progress: Callable[[int], None] = silent,
) -> TableSummary:
    """Add `concept:<name>` columns (1, 0, blank) to a table by reading one of its columns, and write the evidence.

    A table with a column `image` becomes a manifest: columns that training does not know are kept as `note:<name>`.
    Rows are read and written one at a time, `progress` getting their number; both files appear complete or not at all.
    """
    csv_in, csv_out, evidence_out = Path(csv_in), Path(csv_out), Path(evidence_out)
    _check_paths(csv_in, csv_out, evidence_out)
    if csv_out.resolve() == evidence_out.resolve():
        raise ValueError(f"{csv_out} is named for both the table and the evidence; choose two names")
    with ExitStack() as stack:
        header, place, rows = _open_table(stack, csv_in, column)
        if there := [name for name in lexicon.names if PREFIX + name in header]:
            raise ValueError(f"{csv_in} already has a column {PREFIX + there[0]!r}; remove it or rename it")
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
                concept, *words = map(text_cell, (found.concept, found.text, found.reason))
                evidence.writerow([number, concept, _cell(found.value), found.start, found.end, *words])
            summary.add(current[place], findings)
            progress(summary.rows)
    return summary


def propose_lexicon(
    csv_in: str | Path,
    column: str,
    out: str | Path,
    *,
    lexicon: Lexicon | None = None,
    progress: Callable[[int], None] = silent,
) -> Counter[str]:
    """Write a lexicon to edit, of the phrases of a column that `lexicon` lacks; gives how many texts have each."""
    csv_in, out = Path(csv_in), Path(out)
    _check_paths(csv_in, out)
    if out.exists():
        raise FileExistsError(f"{out} is there already, and may have been edited; choose another name for the lexicon")
    reader, counts, number = PieceReader(lexicon or Lexicon(())), Counter[str](), 0
    with ExitStack() as stack:
        _, place, rows = _open_table(stack, csv_in, column)
        for number, row in enumerate(rows, 1):
            counts += count_phrases([noun_phrases(reader.read(row[place]), row[place])])
            progress(number)
    if not counts:
        raise ValueError(f"{csv_in}: the column {column!r} has no phrases; name the column with the texts")
    with write_atomically(out) as file:
        file.write(lexicon_of(counts, number, csv_in.name))
    return counts


def _open_table(stack: ExitStack, path: Path, column: str) -> tuple[list[str], int, Iterator[list[str]]]:
    """The header of a table, the place of a column in it, and the rows below."""
    rows = _rows(stack.enter_context(path.open(encoding="utf-8-sig", newline="")), path)
    header = next(rows, None)
    if header is None:
        raise ValueError(f"{path} is empty; give a table whose first row names the columns")
    return header, _place(header, column, path), rows


def _cell(value: float) -> str:
    return "" if math.isnan(value) else str(int(value))


def _check_paths(csv_in: Path, *written: Path) -> None:
    if not csv_in.is_file():
        raise FileNotFoundError(f"{csv_in} is missing; give a CSV file with a column of texts")
    for path in written:
        if path.resolve() == csv_in.resolve() or (path.exists() and path.samefile(csv_in)):
            raise ValueError(f"{path} is the input and would be overwritten; choose another name for the output")
        if not path.parent.is_dir():
            raise FileNotFoundError(f"{path.parent} is not a folder; create it, or write {path.name} somewhere else")
        if path.is_dir():
            raise ValueError(f"{path} is a folder; give the name of a file in it")


def _rows(file: IO[str], path: Path) -> Iterator[list[str]]:
    """Rows of equal length, blank lines left out; a short row (a spreadsheet drops trailing blanks) is filled up."""
    reader = csv.reader(file, strict=True)
    longest = csv.field_size_limit(_LONGEST_CELL)
    width = number = 0
    try:
        for number, row in enumerate(filter(None, reader), 1):
            width = width or len(row)
            if len(row) > width:
                what = f"{len(row)} cells, but {width} columns"
                raise ValueError(f"{path}, row {number}: {what}; put quotes around a text with commas")
            yield row + [""] * (width - len(row))
    except UnicodeDecodeError as error:
        place = f"byte 0x{error.object[error.start]:02x} after row {number}"
        how = "save it as 'CSV UTF-8', or convert it with iconv -f windows-1252 -t utf-8"
        raise ValueError(f"{path} is not UTF-8 ({place}); {how}") from None
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


def _place(header: Sequence[str], column: str, path: Path) -> int:
    if header.count(column) > 1:
        raise ValueError(f"{path} has {header.count(column)} columns {column!r}; rename all but one")
    if column not in header:
        hint = nearest(column, [*header])
        if len(header) == 1 and ";" in header[0]:
            hint = "; its columns are separated by semicolons, save it with commas"
        raise ValueError(f"{path} has no column {column!r}{hint}")
    return header.index(column)
