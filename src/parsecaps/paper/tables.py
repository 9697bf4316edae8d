"""`TABLES`: every table and figure that can be measured again, by its name, and what each needs and costs here."""

from collections.abc import Sequence
from dataclasses import replace

from parsecaps.paper.affnist import AffNIST
from parsecaps.paper.capsules import Capsules
from parsecaps.paper.cells import BUDGETS, Load, Log, Request, nearest
from parsecaps.paper.classification import Classification, Redundancy
from parsecaps.paper.concepts import Concepts
from parsecaps.paper.leak import Leak
from parsecaps.paper.needs import find
from parsecaps.paper.pace import HOUR, duration, epochs_in_an_hour, seconds
from parsecaps.paper.price import Price
from parsecaps.paper.routing import Routing
from parsecaps.paper.skin import Losses, Skin
from parsecaps.paper.table import Table
from parsecaps.paper.unnamed import Discovered, Reconstruction
from parsecaps.types import Grid

_KINDS: tuple[type[Table], ...] = (
    *(Classification, Skin, Capsules, Losses, AffNIST, Routing),
    *(Redundancy, Concepts, Discovered, Reconstruction, Leak, Price),
)
TABLES: dict[str, Table] = {kind.name: kind() for kind in _KINDS}


def find_table(name: str) -> Table:
    """A table by its name; an unknown one is refused with the nearest."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; {nearest(name, list(TABLES))}")
    return TABLES[name]


def list_tables(name: str | None, request: Request, log: Log) -> tuple[Grid, list[str]]:
    """A row with times for each table, or one, and a line on each; those without the models wanted are left out."""
    rows, lines = [], []
    for table in TABLES.values() if name is None else [find_table(name)]:
        try:
            loads = {budget: table.loads(replace(request, budget=budget)) for budget in BUDGETS}
        except ValueError:
            if name is not None:
                raise
            continue
        times = [_time(table, replace(request, budget=budget), each, log) for budget, each in loads.items()]
        rows.append((table.name, f"{len(loads['quick']) or len(table.columns):,}", *times))
        places = ((need, find(need)) for need in table.needs)
        needs = [f"{need.title} ({f'here: {place}' if place else need.where})" for need, place in places]
        paper = table.paper.removeprefix("ParseCaps paper, ")
        lines.append(f"{table.name}: {table.title} ({paper}). Needs {'; '.join(needs) or 'nothing'}.")
    return Grid("", ("NAME", "cells", *BUDGETS), rows), lines


def _time(table: Table, request: Request, loads: Sequence[Load], log: Log) -> str:
    if not loads:
        return "seconds"
    epochs = table.protocol.scale(request).epochs
    fitted = epochs or epochs_in_an_hour(loads, table.protocol.most, log)
    total = sum(seconds(load, fitted, log) for load in loads)
    if epochs is not None:
        return duration(total)
    about = "about an hour" if total < 2 * HOUR else duration(total)
    return f"{about}, {fitted} epoch{'s' if fitted > 1 else ''}"
