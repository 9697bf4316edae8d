"""`TABLES`: every table and figure that can be measured again, by its name, and what each needs and costs here."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parsecaps.paper.affine_digits import AffNIST
from parsecaps.paper.capsule_counts import Capsules
from parsecaps.paper.cells import Log, Request
from parsecaps.paper.concept_figures import ConceptFigures
from parsecaps.paper.leak import LeakTable
from parsecaps.paper.listing import BUDGETS, Listing, nearest
from parsecaps.paper.price import Price
from parsecaps.paper.routing_table import RoutingTable
from parsecaps.paper.skin import Losses, Skin
from parsecaps.paper.slowdown import machine, seconds_per_epoch
from parsecaps.paper.table import PaperTable
from parsecaps.paper.tumours import Redundancy, TumourTable
from parsecaps.paper.unnamed import Discovered, ReconstructionTable

_KINDS: tuple[type[PaperTable], ...] = (
    *(TumourTable, Skin, Capsules, Losses, AffNIST, RoutingTable),
    *(Redundancy, ConceptFigures, Discovered, ReconstructionTable, LeakTable, Price),
)
TABLES: dict[str, PaperTable] = {kind.name: kind() for kind in _KINDS}


def find_table(name: str) -> PaperTable:
    """A table by its name; an unknown one is refused with the nearest."""
    if name not in TABLES:
        raise ValueError(f"there is no table {name!r}; {nearest(name, list(TABLES))}")
    return TABLES[name]


def measure_listing(name: str | None, models: Sequence[str], log: Log) -> Listing:
    """The listing of each table, or one, with times of this machine, for the models wanted or all columns."""
    chosen = TABLES if name is None else {name: find_table(name)}
    return {"machine": machine(), "tables": {own: _listed(table, models, log) for own, table in chosen.items()}}


def _listed(table: PaperTable, models: Sequence[str], log: Log) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for wanted in models or [each.name for each in table.columns if each.kind]:
        costs: dict[str, Any] = {}
        for budget in BUDGETS:
            try:
                loads = table.loads(Request(budget, Path(), models=(wanted,)))
            except ValueError:  # the table does not know this model
                break
            costs[budget] = [len(loads), round(seconds_per_epoch(loads, log), 2)]
        else:
            columns[wanted] = {"usual": wanted in (table.usual_columns or [wanted]), **costs}
    needs = [
        {"name": need.name, "folder": need.folder, "title": need.title, "where": need.where} for need in table.needs
    ]
    scaled = hasattr(table, "protocol")
    return {
        "title": table.title,
        "paper": table.paper.removeprefix("ParseCaps paper, "),
        "needs": needs,
        "epochs": {budget: table.protocol.scales[budget].epochs if scaled else 1 for budget in BUDGETS},
        "most": table.protocol.most if scaled else 1,
        "columns": columns,
    }


if __name__ == "__main__":
    print(json.dumps(measure_listing(None, (), lambda line: print(line, file=sys.stderr)), indent=1))
