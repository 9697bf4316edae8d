"""What the commands print: tables for a terminal, made of the typed results of the other parts.

rich draws random numbers when it is imported, so it is imported where it is used.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

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
        table.add_row(row.name, *numbers, style=style, end_section=i == first_total - 1)
    return table


def plain_table(title: str, *columns: str) -> "Table":
    """A table whose first column is text and whose others are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i == 0 else "right", no_wrap=True)
    return table
