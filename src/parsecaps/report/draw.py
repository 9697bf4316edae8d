"""Draws the tables of results in a terminal, on a page and in Markdown.

Names may look like markup of rich; so tables are made of `Text`, which has none. rich draws random numbers when it is
imported, so it is imported where it is used.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from markupsafe import Markup, escape

from parsecaps.types import Cell, Grid

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

_STYLES = {"present": "bold green", "absent": "bold red", "unknown": "bold yellow"}


@overload
def draw(grid: Grid, medium: Literal["terminal"]) -> "Table": ...
@overload
def draw(grid: Grid, medium: Literal["html", "markdown"]) -> str: ...
def draw(grid: Grid, medium: Literal["terminal", "html", "markdown"]) -> "Table | str":
    """A table for rich, or its text in HTML or Markdown, where the title is left to the page."""
    if medium == "terminal":
        return terminal_table(grid)
    return _html(grid) if medium == "html" else _markdown(grid)


def terminal_table(grid: Grid, *, framed: bool = False) -> "Table":
    """A table for rich, without vertical lines unless `framed`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(grid.title, "table.title"), title_justify="left")
    table.box = table.box if framed else box.SIMPLE_HEAD
    for i, heading in enumerate(grid.columns):
        justify: Literal["left", "right"] = "left" if i in grid.left else "right"
        fold = i in grid.folded
        table.add_column(
            Text(heading), justify=justify, no_wrap=not (fold or framed), overflow="fold" if fold else "ellipsis"
        )
    last = len(grid.rows) - grid.totals
    for i, row in enumerate(grid.rows):
        texts = (Text(_plain(each, grid.stacked)) for each in row)
        table.add_row(*texts, style="bold" if i >= last else None, end_section=bool(grid.totals) and i == last - 1)
    return table


def _plain(cell: str | Cell, stacked: bool) -> str:
    if isinstance(cell, str):
        return cell
    if stacked:
        return f"{cell.text}\n{cell.below}"
    return cell.text if cell.below in ("", "-") else f"{cell.text} ({cell.below})"


def _html(grid: Grid) -> str:
    heads = (Markup('<th scope="col">{}</th>').format(each) for each in grid.columns)
    lines = [Markup("").join(heads)]
    for name, *cells in grid.rows:
        first = Markup('<td class="name">{}</td>').format(html_cell(name))
        lines.append(first + Markup("").join(Markup("<td>{}</td>").format(html_cell(each)) for each in cells))
    rows = Markup("\n").join(Markup("<tr>{}</tr>").format(line) for line in lines)
    return Markup("<table>{}</table>").format(rows)


def html_cell(cell: str | Cell) -> Markup:
    """What stands in a cell of a page; its n shows where one points at the number."""
    if isinstance(cell, str):
        return escape(cell)
    text = Markup("<b>{}</b>" if cell.bold else "{}").format(cell.text)
    if cell.n is not None:
        text = Markup('<span title="n = {:,}">{}</span>').format(cell.n, text)
    return text + Markup("<small>{}</small>").format(cell.below)


def _markdown(grid: Grid) -> str:
    rule = ["---" if i in grid.left else "---:" for i in range(len(grid.columns))]
    rows = [[plain_markdown(_plain(each, stacked=False)) for each in row] for row in (grid.columns, *grid.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]])


def plain_markdown(text: object) -> str:
    r"""Text as it is, on one line, whatever signs of Markdown or HTML are in it.

    >>> plain_markdown("a|b <i> [x](y)")
    'a\\|b \\<i\\> \\[x\\](y)'
    """
    return re.sub(r"([\\`*_|<>\[\]#~])", r"\\\1", " ".join(str(text).split()))


def highlight(text: str, spans: Sequence[tuple[int, int, str]], named: Mapping[str, Sequence[str]]) -> "Text":
    r"""A text with what it asserts in green, denies in red and leaves open in yellow, then the names of the concepts.

    `spans` have a start, an end and a kind, present, absent or unknown; `named` are the concepts of each kind.

    >>> highlight("No veil.", [(0, 7, "absent")], {"absent": ["veil"]}).plain
    'No veil.\n  absent: veil'
    """
    from rich.text import Text

    shown = Text(text)
    for start, end, kind in sorted(spans, key=lambda span: span[0] - span[1]):  # the longest first
        shown.stylize(_STYLES[kind], start, end)
    for kind, names in named.items():
        if names:
            shown.append(f"\n  {kind}: ", _STYLES[kind]).append(", ".join(names))
    return shown
