"""What `parsecaps data` and `parsecaps concepts` print: tables, lines and coloured texts for the terminal."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from parsecaps.data.cases import SPLITS, DataSet, Source, Split
from parsecaps.data.check import PARTS, DataCheck
from parsecaps.data.splits import Divided, describe_parts, split_hash
from parsecaps.report.terminal import add_row, plain_table
from parsecaps.text.finding import Findings
from parsecaps.text.table import TableSummary

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {1.0: "bold green", 0.0: "bold red"}
_UNKNOWN_STYLE = "bold yellow"


def check_tables(check: DataCheck) -> "Iterator[Table]":
    """Classes and patients by part, then the concepts."""
    used = [part for part in PARTS if part != "unused" or check.patients_by_part[part]]
    classes = plain_table("classes and patients", "class", *used, "all")
    for name, counts in check.by_class.items():
        add_row(classes, name, *(f"{counts[part]:,}" for part in used), f"{sum(counts.values()):,}")
    add_row(classes, "patients", *(f"{check.patients_by_part[part]:,}" for part in used), f"{check.patients:,}")
    yield classes
    if check.concepts:
        columns = [f"{part} 1 / 0 / unknown" for part in used]
        concepts = plain_table("concepts: present, absent, unknown", "concept", *columns)
        for name, parts in check.by_concept.items():
            cells = (f"{c.present:,} / {c.absent:,} / {c.unknown:,}" for c in (parts[part] for part in used))
            add_row(concepts, name, *cells)
        yield concepts


def check_lines(check: DataCheck, most: int) -> Iterator[str]:
    """The rest, line by line, at most so many of a kind, and the verdict last."""
    yield f"{check.source}: {check.root}"
    fewest, largest = check.images_per_patient
    yield f"{check.images:,} images of {check.patients:,} patients, {fewest} to {largest} each"
    counts: dict[Split | None, int] = {
        part: sum(by_part[part] for by_part in check.by_class.values()) for part in SPLITS
    }
    yield f"split: {describe_parts(counts, check.unused)}; hash {check.split_hash}"
    sizes = ", ".join(f"{size} ({count:,})" for size, count in list(check.sizes.items())[:5])
    yield f"sizes: {sizes}{' and others' if len(check.sizes) > 5 else ''}"
    if check.ceiling is not None:
        yield (
            f"the concepts alone can name the class in at most {100 * check.ceiling:.1f} % "
            f"of {check.ceiling_cases:,} cases"
        )
    for title, lines in (
        ("note", check.notes),
        ("problem", check.problems),
        ("odd", check.odd),
        ("leak", check.leaks),
    ):
        for line in lines[:most]:
            yield f"{title}: {line}"
        if len(lines) > most:
            yield f"{title}: {len(lines) - most:,} more; --json and --page have all of them"
    yield "safe to train on" if check.safe else "UNSAFE: " + "; ".join(check.reasons)


def source_table(sources: Mapping[str, Source]) -> "Table":
    """What can be read, and how it is recognised."""
    table = plain_table("sources", "name", "what it is")
    for name, source in sources.items():
        add_row(table, name, source.summary)
    return table


def split_lines(path: Path, data: DataSet, divided: Divided) -> Iterator[str]:
    """How many cases a split file has in each part, the hash of the split, and who was dealt."""
    parts = describe_parts(Counter(divided.division), divided.unused())
    yield f"{path}: {parts}; hash {split_hash(data, divided.division)}"
    for note in divided.notes:
        yield f"note: {note}"


def concept_table(summary: TableSummary) -> "Table":
    """In how many rows of a table each concept is present, absent and unknown."""
    table = plain_table(f"{summary.rows:,} rows", "concept", "present", "absent", "unknown")
    for name, counts in summary.counts.items():
        add_row(table, name, f"{counts.present:,}", f"{counts.absent:,}", f"{counts.unknown:,}")
    return table


def highlight(text: str, findings: Findings) -> "Text":
    r"""The text with what it asserts in green, what it denies in red and what stays open in yellow, then the concepts.

    >>> from parsecaps.text import Finding
    >>> no_veil = Findings({"veil": 0.0}, (Finding("veil", 0.0, 0, 7, "No veil", "negated"),))
    >>> highlight("No veil.", no_veil).plain
    'No veil.\n  absent: veil'
    """
    from rich.text import Text

    shown = Text(text)
    for finding in sorted(findings.evidence, key=lambda finding: finding.start - finding.end):  # the longest first
        if finding.reason != "another kind is stated":
            shown.stylize(_STYLES.get(finding.value, _UNKNOWN_STYLE), finding.start, finding.end)
    named = {name for name in findings.values if any(finding.concept == name for finding in findings.evidence)}
    for label, style, names in (
        ("present", _STYLES[1.0], [name for name, value in findings.values.items() if value == 1]),
        ("absent", _STYLES[0.0], [name for name, value in findings.values.items() if value == 0]),
        (
            "unknown",
            _UNKNOWN_STYLE,
            [name for name, value in findings.values.items() if math.isnan(value) and name in named],
        ),
    ):
        if names:
            shown.append(f"\n  {label}: ", style).append(", ".join(names))
    return shown
