"""What `parsecaps explain` prints: a table for each of a few images, a line for each of many."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from parsecaps.explain.explanation import Explanation

if TYPE_CHECKING:
    from rich.table import Table

FEW = 5  # images that get a table each


def explanation_summary(explanations: Sequence[Explanation]) -> Iterator["Table | str"]:
    """Tables, each with the lines that belong to it, or one line for each where there are more than a few."""
    if len(explanations) > FEW:
        yield from map(explanation_line, explanations)
        return
    for each in explanations:
        yield explanation_table(each)
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
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(_answer(explanation)), title_justify="left")
    table.add_column("concept")
    table.add_column("presence", justify="right")
    table.add_column("seen")
    if explanation.reasons:
        table.add_column(f"to {escape(explanation.diagnosis)}", justify="right")
    best = list(explanation.probabilities).index(explanation.diagnosis)
    order = sorted(range(len(explanation.concepts)), key=lambda j: -explanation.concepts[j].presence)
    for j in order:
        each = explanation.concepts[j]
        adds = [f"{explanation.reasons.contributions[best, j]:+.2f}"] if explanation.reasons else []
        table.add_row(escape(each.name), f"{each.presence:.2f}", "yes" if each.seen else "no", *adds)
    return table


def _answer(explanation: Explanation) -> str:
    answer = f"{explanation.name}: {explanation.diagnosis} {explanation.probability:.1%}"
    if explanation.abstain:
        answer += f"; abstains: {' or '.join(explanation.possible or ['nothing'])} cannot be ruled out"
    return answer if explanation.truth is None else f"{answer} (known to be {explanation.truth})"
