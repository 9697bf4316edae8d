"""What can be measured again, what it needs and how long it takes, from a stored table: no network is built.

`python -m parsecaps.paper.tables` measures the table (`listing.json`) anew.
"""

import json
import os
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from parsecaps.data.sources import SOURCES

Budget = Literal["quick", "hour", "full"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
FOLDER_VARIABLE = "PARSECAPS_DATA"
_JOINED = {"ph2d7": ("ph2", "derm7pt")}
HOUR = 3600.0
BESIDE = 1.3  # of a cell's time is augmentation, validation and reading; measured on CE-MRI and the phantom
SECONDS_PER_CELL = 10.0  # to start, calibrate and score
Listing = Mapping[
    str, Any
]  # `machine`, and by table its titles, needs, epochs, and by column and budget [cells, seconds]


def stored_listing() -> Listing:
    """The table that comes with the package."""
    found: Listing = json.loads((files("parsecaps.paper") / "listing.json").read_text(encoding="utf-8"))
    return found


def describe(
    listing: Listing, name: str | None = None, models: Sequence[str] = (), epochs: int | None = None
) -> list[str]:
    """Lines with times for each table, or one, and what each needs; tables without the models wanted are left out."""
    tables = listing["tables"]
    if name is not None and name not in tables:
        raise ValueError(f"there is no table {name!r}; {nearest(name, list(tables))}")
    wanted, rows, lines = {model.casefold() for model in models}, [("NAME", "cells", *BUDGETS)], []
    for own in tables if name is None else [name]:
        table = tables[own]
        columns = [each for title, each in table["columns"].items() if title.casefold() in wanted]
        if not wanted:
            columns = [each for each in table["columns"].values() if each["usual"]]
        if not columns:
            continue
        times = [_time(table, budget, [each[budget] for each in columns], epochs) for budget in BUDGETS]
        cells = sum(each["quick"][0] for each in columns) or len(columns)
        rows.append((own, f"{cells:,}", *times))
        needs = [f"{need['title']} ({_place(need)})" for need in table["needs"]]
        lines.append(f"{own}: {table['title']} ({table['paper']}). Needs {'; '.join(needs) or 'nothing'}.")
    if not lines:
        raise ValueError(f"no time is stored for {', '.join(models)}; --measure times any model")
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    grid = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return [*grid, "", *lines, f"times are from a training step of each model, timed on {listing['machine']}"]


def find_folder(name: str, folder: str = "") -> str | None:
    """Find a source below the folder `PARSECAPS_DATA`, a joint one by its two parts; None if it is missing."""
    source = SOURCES[name]
    if not source.needs_path:
        return f"{name}:n=2000,size=64"
    root = os.environ.get(FOLDER_VARIABLE)
    place = Path(root) / (folder or name) if root else None
    if place is not None and place.is_dir() and source.recognise(place):
        return f"{name}:{place}"
    both = [find_folder(each) for each in _JOINED.get(name, ())]
    return f"{name}:{','.join(each.partition(':')[2] for each in both if each)}" if both and all(both) else None


def _place(need: Mapping[str, str]) -> str:
    place = find_folder(need["name"], need["folder"])
    return f"here: {place}" if place else need["where"]


def _time(table: Mapping[str, Any], budget: str, costs: Sequence[tuple[int, float]], epochs: int | None) -> str:
    cells, once = (sum(each) for each in zip(*costs, strict=True))
    if not cells:
        return "seconds"
    given = epochs or table["epochs"][budget]
    fitted = given or fitting_epochs(cells, once, table["most"])
    total = SECONDS_PER_CELL * cells + fitted * once
    if given is not None:
        return duration(total)
    about = "about an hour" if total < 2 * HOUR else duration(total)
    return f"{about}, {fitted} epoch{'s' if fitted > 1 else ''}"


def fitting_epochs(cells: int, once: float, most: int) -> int:
    """The epochs for each of some cells that together take an hour, if one epoch of all takes `once` seconds."""
    return max(1, min(most, int((HOUR - SECONDS_PER_CELL * cells) / once))) if cells else 1


def duration(amount: float) -> str:
    """A time in words.

    >>> duration(50), duration(70), duration(600), duration(9000), duration(400000)
    ('under a minute', '1 minute', '10 minutes', '2.5 hours', '4.6 days')
    """
    if amount < 60:
        return "under a minute"
    if amount < 100 * 60:
        minutes = round(amount / 60)
        return f"{minutes} minute{'s' * (minutes > 1)}"
    return f"{amount / 3600:.1f} hours" if amount < 48 * 3600 else f"{amount / 86400:.1f} days"


def nearest(name: str, names: Sequence[str]) -> str:
    """What may have been meant by an unknown name.

    >>> nearest("clasification", ["classification", "leak"])
    "did you mean 'classification'?"
    """
    known = {each.casefold(): each for each in names}
    near = get_close_matches(name.casefold(), known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else f"choose one of {', '.join(names)}"
