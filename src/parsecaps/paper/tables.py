"""`TABLES`: every table and figure that can be measured again, by its name, and what each needs and costs here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

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

_LISTED: tuple[Table, ...] = (
    Classification(),
    Skin(),
    Capsules(),
    Losses(),
    AffNIST(),
    Routing(),
    Redundancy(),
    Concepts(),
    Discovered(),
    Reconstruction(),
    Leak(),
    Price(),
)
TABLES: dict[str, Table] = {table.name: table for table in _LISTED}


def find_table(name: str) -> Table:
    """A table by its name; an unknown one is refused with the nearest."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; {nearest(name, list(TABLES))}")
    return TABLES[name]


@dataclass(frozen=True)
class Listed:
    """A table as it is listed; `times` are for each budget."""

    name: str
    title: str
    paper: str
    cells: int
    times: tuple[str, ...]
    needs: str


def list_tables(name: str | None, request: Request, log: Log) -> Iterator[Listed]:
    """Each table, or one; each model is timed once on this machine, which is remembered.

    Where models were asked for, tables that have no such model are left out.
    """
    for table in TABLES.values() if name is None else [find_table(name)]:
        try:
            loads = {budget: table.loads(replace(request, budget=budget)) for budget in BUDGETS}
        except ValueError:
            if name is not None:
                raise
            continue
        cells = len(loads["quick"]) or len(table.columns)
        times = tuple(_time(table, replace(request, budget=budget), each, log) for budget, each in loads.items())
        places = ((need, find(need)) for need in table.needs)
        listed = [f"{need.title} ({f'here: {place}' if place else need.where})" for need, place in places]
        needs = "; ".join(listed) or "nothing"
        yield Listed(
            table.name, table.title, table.paper.removeprefix("ParseCaps paper, "), cells, times, needs or "nothing"
        )


def _time(table: Table, request: Request, loads: Sequence[Load], log: Log) -> str:
    """How long these trainings take one after the other."""
    if not loads:
        return "seconds"
    epochs = table.protocol.scale(request).epochs
    fitted = epochs or epochs_in_an_hour(loads, table.protocol.most, log)
    total = sum(seconds(load, fitted, log) for load in loads)
    if epochs is not None:
        return duration(total)
    about = "about an hour" if total < 2 * HOUR else duration(total)
    return f"{about}, {fitted} epoch{'s' if fitted > 1 else ''}"
