"""`parsecaps reproduce --list`: what each table needs, how many cells it has, and how long it takes here."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from parsecaps.models import all_models
from parsecaps.paper.needs import Need, find
from parsecaps.paper.pace import HOUR, duration, epochs_in_an_hour, seconds
from parsecaps.paper.plan import BUDGETS, Load, Log, Request
from parsecaps.paper.tables import TABLES, find_table


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
        cells = len(loads["quick"]) or table.untrained
        times = tuple(_time(loads[budget], table.most_epochs, log) for budget in BUDGETS)
        needs = "; ".join(map(_need, table.needs)) or "nothing"
        yield Listed(table.name, table.title, table.paper.removeprefix("ParseCaps paper, "), cells, times, needs)


def _time(loads: Sequence[Load], most: int, log: Log) -> str:
    """How long these trainings take one after the other."""
    if not loads:
        return "seconds"
    if missing := sorted({load.column.kind for load in loads} - set(all_models())):
        return f"unknown: no {', '.join(missing)}"
    if loads[0].epochs is None:
        epochs = epochs_in_an_hour(loads, most, log)
        total = sum(seconds(load, epochs, log) for load in loads)
        about = "about an hour" if total < 2 * HOUR else duration(total)
        return f"{about}, {epochs} epoch{'s' if epochs > 1 else ''}"
    return duration(sum(seconds(load, load.epochs or 1, log) for load in loads))


def _need(need: Need) -> str:
    return f"{need.title} ({f'here: {place}' if (place := find(need)) else need.where})"
