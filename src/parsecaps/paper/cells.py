"""Cells, one by one: trained or gone on with in a folder of their own, measured once, by one process each."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from parsecaps.files.writing import make_private_folder, write_text
from parsecaps.paper.plan import Cell, Measured
from parsecaps.run import Run
from parsecaps.training.callbacks import Callbacks
from parsecaps.training.fit import MAY_DIFFER, fit
from parsecaps.training.plan import refuse_others

_OF_TORCHRUN = ("TORCHELASTIC_RUN_ID", "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")


class CellStore:
    """The cells of a table below a folder, and what is kept of each."""

    def __init__(self, out: Path, table: str) -> None:
        self.folder, self.table = out / "cells", table

    def place(self, cell: Cell) -> Path:
        """The folder of a cell: a run folder, where it is trained."""
        return self.folder / cell.name

    def kept(self, cell: Cell) -> Measured | None:
        """What was measured of a cell; None where it is not finished."""
        file = self._file(cell)
        if not file.is_file():
            return None
        try:
            found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise ValueError(f"{file} is no JSON; remove it, and it is measured again") from None
        return found

    def measured(self, cells: Sequence[Cell]) -> dict[str, Measured]:
        """All that is finished, by the names of cells.

        Refused where some were trained on other cases than the rest, or with other settings than are wanted now.
        """
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
        """Whether the cell is ours now; a process that died lets go of its cells."""
        place = self.place(cell)
        make_private_folder(place.parent)
        lock = FileLock(place.parent / f".{place.name}.lock", mode=0o600)  # let go by the system, as in training.folder
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _file(self, cell: Cell) -> Path:
        return self.place(cell) / f"{self.table}.json"


@contextmanager
def alone() -> Iterator[None]:
    """Let each process that torchrun started train its cells by itself, not together with the others."""
    hidden: Mapping[str, str] = {name: os.environ.pop(name) for name in _OF_TORCHRUN if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(hidden)
