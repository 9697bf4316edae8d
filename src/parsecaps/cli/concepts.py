"""`parsecaps concepts`: concept labels from free text."""

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from parsecaps.cli.command import argument, command, option
from parsecaps.cli.output import display
from parsecaps.cli.progress import showing_stages


@command()
def concepts(
    reports: Annotated[Path, argument("CSV", "A table with a column of descriptions or reports.")],
    column: Annotated[str, typer.Option(help="The column with the texts.")],
    out: Annotated[Path, option("FILE", "The table to write, with a column per concept added.")],
    evidence: Annotated[Path | None, option("CSV", "Where to write the evidence; beside OUT if left out.")] = None,
    lexicon: Annotated[Path | None, option("YAML", "Phrases and synonyms; those of dermoscopy if left out.")] = None,
    propose: Annotated[
        bool, typer.Option("--propose", help="Write a lexicon to edit in place of a table: the most frequent phrases.")
    ] = False,
) -> dict[str, Any]:
    """Read concept labels out of free text.

    What a text asserts is 1, what it denies 0, what it leaves open stays blank. Writes the table with `concept:<name>`
    columns, ready to train on, and beside it the words behind each label, so that a person can check them.

    **Examples**

    - `parsecaps concepts reports.csv --column text --out cases.csv`
    - `parsecaps concepts reports.csv --column findings --propose --out chest.yaml`
    - `parsecaps concepts reports.csv --column findings --lexicon chest.yaml --out cases.csv`
    """
    from parsecaps.report.draw import highlight
    from parsecaps.text import Lexicon, annotate_table, propose_lexicon

    if propose:
        if evidence is not None:
            raise ValueError("--evidence is of a table with concepts, and --propose writes none; leave one out")
        listed = None if lexicon is None else Lexicon.load(lexicon)
        with showing_stages() as show:
            progress = partial(show, "reading rows", total=None)
            counts = propose_lexicon(reports, column, out, lexicon=listed, progress=progress)
        display(f"{len(counts):,} phrases found; lexicon, to be edited: {out}")
        return {"phrases": dict(counts.most_common())}
    evidence = out.with_stem(f"{out.stem}-evidence") if evidence is None else evidence
    words = Lexicon.shipped("dermoscopy") if lexicon is None else Lexicon.load(lexicon)
    with showing_stages() as show:
        progress = partial(show, "reading rows", total=None)
        summary = annotate_table(reports, column, words, out, evidence, progress=progress)
    first = [highlight(text, findings.spans(), findings.named()) for text, findings in summary.first]
    display(*first, summary.table(), *summary.lines(), f"table: {out}", f"evidence, to be checked: {evidence}")
    return {
        "rows": summary.rows,
        "concepts": {name: asdict(counts) for name, counts in summary.counts.items()},
        "not_in_lexicon": dict(summary.unlisted.most_common()),
    }
