"""`parsecaps reproduce NAME`: finish the cells of a table one by one, one process each, and write it after each."""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from parsecaps.files.writing import make_private_folder, write_text
from parsecaps.paper.cells import Cell, Measured, Request
from parsecaps.paper.listing import BUDGETS, Budget, nearest
from parsecaps.paper.slowdown import machine
from parsecaps.paper.table import Work
from parsecaps.paper.tables import find_table
from parsecaps.report.reproduced import Reproduced, markdown
from parsecaps.run import Run
from parsecaps.system.signals import sigterm_raises
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import MAY_DIFFER, fit
from parsecaps.training.plan import refuse_others

OUT = "reproduced"
_OF_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


class CellStore:
    """The cells of a table below a folder, and what is kept of each."""

    def __init__(self, out: Path, table: str) -> None:
        self.folder, self.table = out / "cells", table

    def place(self, cell: Cell) -> Path:
        """The folder of a cell: a run folder, where it is trained."""
        return self.folder / cell.name

    def kept(self, cell: Cell) -> Measured | None:
        """What was measured of a cell; None if it is not finished."""
        file = self._file(cell)
        if not file.is_file():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(f"{file} is no JSON; remove it, and it is measured again") from None
        return found

    def measured(self, cells: Sequence[Cell]) -> dict[str, Measured]:
        """All that is finished, by the names of cells; refused if trained on different cases or with other settings."""
        found = {cell.name: kept for cell in cells if (kept := self.kept(cell)) is not None}
        for cell in cells:
            if cell.name in found and cell.config is not None:
                refuse_others(Run(self.place(cell)), cell.config, MAY_DIFFER)
        self.check_same_cases([cell for cell in cells if cell.name in found])
        return found

    def check_same_cases(self, cells: Sequence[Cell]) -> None:
        """Refuse cells of one table whose runs saw different cases."""
        first: dict[str, tuple[Path, str]] = {}
        for cell in cells:
            run = Run(self.place(cell))
            if not cell.cases or not run.is_there:
                continue
            digest = str(run.about["split_hash"])
            place, there = first.setdefault(cell.cases, (run.folder, digest))
            if digest != there:
                raise ValueError(
                    f"{run.folder} was trained on other cases (split {digest}) than {place} (split {there}); "
                    "remove one of them, or choose another --out"
                )

    def finish(self, cell: Cell, cells: Sequence[Cell], callbacks: Callbacks) -> None:
        """Train what is left of one of the cells, and measure it."""
        folder = self.place(cell)
        make_private_folder(folder.parent)
        run = Run(folder)
        if cell.config is not None:
            run = fit(cell.config, run_folder=folder, resume=True, callbacks=callbacks)
            self.check_same_cases(cells)
        make_private_folder(folder)
        kept = cell.measure(run)
        write_text(self._file(cell), json.dumps(kept, indent=1) + "\n", private=True)

    @contextmanager
    def taken(self, cell: Cell) -> Iterator[bool]:
        """Lock a cell; gives whether it is ours now."""
        place = self.place(cell)
        make_private_folder(place.parent)
        with ExitStack() as held:
            try:  # the system releases the lock of a killed process, as in training.fit
                held.enter_context(FileLock(place.parent / f".{place.name}.lock", mode=0o600).acquire(timeout=0))
            except Timeout:
                yield False
            else:
                yield True

    def _file(self, cell: Cell) -> Path:
        return self.place(cell) / f"{self.table}.json"


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
    """Measure a table or figure of the paper again, or resume one that was stopped; return it as far as it is finished.

    Mistakes are found before the first training. Below `out`, `NAME.json`, `NAME.md` and `NAME.png` are written after
    every finished cell, and `cells` keeps the cells. Several processes with the same `out` share the cells. `models`
    are some of the table's columns, or any others of `MODELS`; `epochs` are the budget's if left out.
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
            waits = any(store.kept(each) is None for each in cell.after)
            if waits or store.kept(cell) is not None or cell.name in failed:
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


def write_table(work: Work, store: CellStore, request: Request, failed: dict[str, str]) -> Reproduced:
    """Write the table and its picture as far as they are finished, one process at a time."""
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


@contextmanager
def alone() -> Iterator[None]:
    """Let each process that torchrun started train its cells by itself, not together with the others."""
    hidden = {name: os.environ.pop(name) for name in _OF_TORCHRUN if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
