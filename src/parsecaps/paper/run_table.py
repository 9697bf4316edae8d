"""`parsecaps reproduce NAME`: finish the cells of a table one by one, and write the table after each."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from filelock import FileLock

from parsecaps.files.writing import make_private_folder, write_text
from parsecaps.paper.cells import CellStore, alone
from parsecaps.paper.pace import machine
from parsecaps.paper.plan import BUDGETS, Budget, Cell, Request, nearest
from parsecaps.paper.table import Work
from parsecaps.paper.tables import find_table
from parsecaps.report.reproduced import Reproduced, markdown
from parsecaps.system.signals import sigterm_raises
from parsecaps.training.callbacks import Callbacks

OUT = "reproduced"


def reproduce(
    name: str,
    *,
    budget: Budget = "quick",
    data: Sequence[str] = (),
    out: str | Path = OUT,
    models: Sequence[str] = (),
    seed: int = 0,
    epochs: int | None = None,
    callbacks: Callbacks | None = None,
) -> Reproduced:
    """Measure a table or figure of the paper again, or go on with one that was stopped; gives it as far as it is there.

    Everything that can be wrong is found before the first training. Below `out`, `NAME.json`, `NAME.md` and `NAME.png`
    are written anew after every finished cell, and `cells` keeps the cells: what is finished is not done again, what
    was begun goes on. Several processes with the same `out` share the cells out among them. `models` are some of the
    table's columns, or any others of `MODELS`; `epochs` those of the budget if left out.
    """
    callbacks = callbacks or Callbacks(log=print)
    if budget not in BUDGETS:
        raise ValueError(f"budget is {budget!r}; {nearest(budget, BUDGETS)}")
    table, folder = find_table(name), Path(out)
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give --out a folder")
    request = Request(budget, folder, tuple(data), tuple(models), seed, epochs)
    with alone(), sigterm_raises():
        work = table.prepare(request, callbacks.log)
        make_private_folder(folder)
        return _finish(work, CellStore(folder, table.name), request, callbacks)


def _finish(work: Work, store: CellStore, request: Request, callbacks: Callbacks) -> Reproduced:
    failed: dict[str, str] = {}
    result = write_table(work, store, request, failed)
    while True:
        tried = False
        for number, cell in enumerate(work.all_cells, 1):
            if store.kept(cell) is not None or cell.name in failed or not _ready(cell, store):
                continue
            with store.taken(cell) as mine:
                if not mine or store.kept(cell) is not None:
                    continue
                tried = True
                callbacks.log(f"cell {number} of {len(work.all_cells)}: {cell.name}")
                try:
                    store.finish(cell, work.all_cells, callbacks)
                except KeyboardInterrupt as stopped:
                    raise type(stopped)(f"stopped in {cell.name}; go on with the same command") from None
                except Exception as error:  # of any kind: the other cells can still be done
                    failed[cell.name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
                    callbacks.log(f"{cell.name} failed: {failed[cell.name]}")
            result = write_table(work, store, request, failed)
        if not tried:
            break
    left = [cell for cell in work.all_cells if store.kept(cell) is None and cell.name not in failed]
    others = [cell.name for cell in left if not {each.name for each in cell.after} & set(failed)]
    if others:
        callbacks.log(f"other processes are at {', '.join(others)}; whoever is last writes the whole table")
    return result


def _ready(cell: Cell, store: CellStore) -> bool:
    """Whether all that a cell needs is finished."""
    return all(store.kept(each) is not None for each in cell.after)


def write_table(work: Work, store: CellStore, request: Request, failed: dict[str, str]) -> Reproduced:
    """Write the table and its picture as far as they are there, one process at a time."""
    make_private_folder(request.out)
    with FileLock(request.out / f".{store.table}.lock", mode=0o600):
        work = replace(work, measured=store.measured(work.all_cells), failed=failed)
        result = replace(work.table.result(work), machine=machine())
        if work.measured:
            picture = request.out / f"{store.table}.png"
            work.table.draw(work, result, picture)
            result = replace(result, picture=picture.name if picture.is_file() else "")
        write_text(request.out / f"{store.table}.md", markdown(result), private=True)
        text = json.dumps(result.as_dict(), indent=2, default=str)
        write_text(request.out / f"{store.table}.json", text + "\n", private=True)
    return result
