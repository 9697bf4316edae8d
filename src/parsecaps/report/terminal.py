"""What the commands print of networks, explanations and discovered concepts: tables and lines for a terminal.

Names come from anywhere, and may look like markup of rich; so tables are made of `Text`, which has none. rich draws
random numbers when it is imported, so it is imported where it is used.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from parsecaps.discovery.discover import DiscoveredConcept, Discovery
from parsecaps.discovery.stability import Stability
from parsecaps.explain.explanation import Explanation
from parsecaps.models.summary import LayerRow

if TYPE_CHECKING:
    from rich.table import Table


def layer_table(rows: Sequence[LayerRow], title: str) -> "Table":
    """The layers of a model, with a line before the totals."""
    table = plain_table(title, "layer", "n", "d", "parameters", "FLOPs")
    first_total = next((i for i, row in enumerate(rows) if row.name.startswith("total")), len(rows))
    for i, row in enumerate(rows):
        numbers = ("" if number is None else f"{number:,}" for number in (row.n, row.d, row.parameters, row.flops))
        style = "bold" if i >= first_total else None
        add_row(table, row.name, *numbers, style=style, end_section=i == first_total - 1)
    return table


def plain_table(title: str, *columns: str) -> "Table":
    """A table whose first column is text and whose others are numbers."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title, "table.title"), title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 else "right", no_wrap=True)
    return table


def add_row(table: "Table", *cells: str, style: str | None = None, end_section: bool = False) -> None:
    """Add a row of texts, each as it is, brackets and all."""
    from rich.text import Text

    table.add_row(*map(Text, cells), style=style, end_section=end_section)


FEW = 5  # images that get a table each


def explanation_summary(explanations: Sequence[Explanation]) -> Iterator["Table | str"]:
    """Tables, each with the lines that belong to it, or one line for each where there are more than a few."""
    if len(explanations) > FEW:
        yield from map(explanation_line, explanations)
        return
    for each in explanations:
        yield explanation_table(each) if each.concepts else _answer(each)
        if each.reasons is not None:
            yield each.reasons.sentence()
        yield from each.strict_lines


def explanation_line(explanation: Explanation) -> str:
    """The answer and the concepts that count as seen, the most present first."""
    seen = sorted((each for each in explanation.concepts if each.seen), key=lambda each: -each.presence)
    listed = ", ".join(each.name for each in seen) or "no concept"
    return _answer(explanation) + (f"; sees {listed}" if explanation.concepts else "")


def explanation_table(explanation: Explanation) -> "Table":
    """The concepts, the most present first, and what each adds to the diagnosis where the model decides by them."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(_answer(explanation), "table.title"), title_justify="left")
    table.add_column("concept")
    table.add_column("presence", justify="right")
    table.add_column("seen")
    if explanation.reasons:
        table.add_column(Text(f"to {explanation.diagnosis}"), justify="right")
    best = list(explanation.probabilities).index(explanation.diagnosis)
    order = sorted(range(len(explanation.concepts)), key=lambda j: -explanation.concepts[j].presence)
    for j in order:
        each = explanation.concepts[j]
        adds = [f"{explanation.reasons.contributions[best, j]:+.2f}"] if explanation.reasons else []
        add_row(table, each.name, f"{each.presence:.2f}", "yes" if each.seen else "no", *adds)
    return table


def _answer(explanation: Explanation) -> str:
    answer = f"{explanation.name}: {explanation.diagnosis} {explanation.probability:.1%}"
    if explanation.abstain:
        answer += f"; abstains: {' or '.join(explanation.possible or ['nothing'])} cannot be ruled out"
    return answer if explanation.truth is None else f"{answer} (known to be {explanation.truth})"


def discovery_table(found: Discovery) -> "Table":
    """The concepts of a run; columns that say nothing of any are left out."""
    purity = any(each.purity for each in found.concepts)
    overlap = any(each.overlap for each in found.concepts)
    columns = ["concept", "presence"]
    columns += ["strongest patients\n(chance, p)"] if purity else []
    columns += ["map in mask\n(mask's share)", "points\nat it"] if overlap else []
    columns += ["found again\n(chance, by class)"] if found.stability else []
    table = plain_table(f"{len(found.concepts)} concepts of {found.run}", *columns, "remark")
    table.columns[-1].justify = "left"
    for column in (table.columns[0], table.columns[-1]):  # names may be long
        column.no_wrap, column.overflow = False, "fold"
    for each in found.concepts:
        cells = [each.name, f"{each.mean:.2f} ± {each.std:.2f}"]
        cells += [_purity(each)] if purity else []
        cells += _overlap(each) if overlap else []
        cells += [_again(each, found.stability)] if found.stability else []
        add_row(table, *cells, remark(each))
    return table


def discovery_lines(found: Discovery) -> Iterator[str]:
    """How many concepts there really are, and how far they are those of other runs."""
    dead, same = sum(each.dead for each in found.concepts), sum(each.duplicate for each in found.concepts)
    rest = f"{dead} hardly vary, {same} say the same as another"
    yield f"they vary as {found.effective:.1f} unrelated concepts would; {rest}"
    if found.stability is not None:
        stable = found.stability
        worst = max(match.p_value for match in stable.matches.values())
        others = ", ".join(each.name for each in found.others)
        yield (
            f"found again by {others}: correlation {stable.mean:.2f} on average, {stable.chance:.2f} with patients "
            f"exchanged (p at most {worst:.3f})"
        )


def remark(concept: DiscoveredConcept) -> str:
    """What stands in the way of naming a concept."""
    if concept.dead:
        return "hardly varies"
    if concept.duplicate and concept.closest is not None:
        return f"{'same as' if concept.closest[1] > 0 else 'opposite of'} {concept.closest[0]}"
    return ""


def _purity(concept: DiscoveredConcept) -> str:
    pure = concept.purity
    if pure is None:
        return "-"
    return f"{pure.share:.0%} {pure.label}\n({pure.chance:.0%}, {pure.p_value:.3f})"


def _overlap(concept: DiscoveredConcept) -> list[str]:
    over = concept.overlap
    return ["-", "-"] if over is None else [f"{over.inside:.0%}\n({over.share:.0%})", f"{over.pointing:.0%}"]


def _again(concept: DiscoveredConcept, stable: Stability) -> str:
    i = concept.index
    in_class = "" if stable.class_chances is None else f", {stable.class_chances[i]:.2f}"
    return f"{stable.by_concept[i]:.2f}\n({stable.chances[i]:.2f}{in_class})"
