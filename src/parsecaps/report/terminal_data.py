"""What the data commands print: tables and lines for the terminal."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from parsecaps.data.check import PARTS, DataCheck
from parsecaps.data.sources import Source
from parsecaps.report.terminal import plain_table

if TYPE_CHECKING:
    from rich.table import Table


def check_tables(check: DataCheck) -> "Iterator[Table]":
    """Classes and patients by part, then the concepts."""
    used = [part for part in PARTS if part != "unused" or check.patients_by_part[part]]
    classes = plain_table("classes and patients", "class", *used, "all")
    for name, counts in check.by_class.items():
        classes.add_row(name, *(f"{counts[part]:,}" for part in used), f"{sum(counts.values()):,}")
    classes.add_row("patients", *(f"{check.patients_by_part[part]:,}" for part in used), f"{check.patients:,}")
    yield classes
    if check.concepts:
        columns = [f"{part} 1 / 0 / unknown" for part in used]
        concepts = plain_table("concepts: present, absent, unknown", "concept", *columns)
        for name, parts in check.by_concept.items():
            cells = (f"{c.present:,} / {c.absent:,} / {c.unknown:,}" for c in (parts[part] for part in used))
            concepts.add_row(name, *cells)
        yield concepts


def check_lines(check: DataCheck, most: int) -> Iterator[str]:
    """The rest, line by line, at most so many of a kind, and the verdict last."""
    yield f"{check.source}: {check.root}"
    fewest, largest = check.images_per_patient
    yield f"{check.images:,} images of {check.patients:,} patients, {fewest} to {largest} each"
    yield f"split: {check.split_hash}"
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
        table.add_row(name, source.summary)
    return table
