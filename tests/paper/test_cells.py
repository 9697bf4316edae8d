"""Cells: one process each, done once, gone on with; and the split and the epochs that all share."""

import json
import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from parsecaps.data.sources import open_data
from parsecaps.data.splits import divide, rows_of
from parsecaps.paper.cells import Cell, Request, Scale
from parsecaps.paper.needs import share_cases, thin
from parsecaps.paper.protocol import settle
from parsecaps.paper.run_table import CellStore, _finish, alone
from parsecaps.paper.table import PaperTable, Published, Work
from parsecaps.report.reproduced import Figure, Measure, Reproduced, TableRow, TableSection
from parsecaps.training.callbacks import Callbacks
from tests.messages import message, refused

QUIET = Callbacks()


class Counting(PaperTable):
    """A table of numbers that need no training."""

    name, title, paper, measures = "numbers", "", "", [Measure("n", "n")]

    def sections(self, work: Work) -> list[TableSection]:
        kept = {cell.name: work.kept(cell) for cell in work.cells}
        rows = [
            TableRow(name, {"n": Figure(each["n"])} if each else {}, work.failed.get(name, ""))
            for name, each in kept.items()
        ]
        return [TableSection("", self.measures, rows)]

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        path.write_bytes(b"picture")


def counting(*cells: Cell) -> Work:
    return Work(Counting(), Request("quick", Path()), (), (), {}, Published(), cells)


def finish(work: Work, out: Path, log: list[str] | None = None) -> Reproduced:
    callbacks = QUIET if log is None else Callbacks(log=log.append)
    return _finish(work, CellStore(out, "numbers"), Request("quick", out), callbacks)


def test_a_table_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    done: list[str] = []

    def number(name: str, stop: list[bool]) -> Cell:
        def measure(run: object) -> dict:
            if stop and stop.pop():
                raise KeyboardInterrupt
            done.append(name)
            return {"n": len(name)}

        return Cell(f"numbers/{name}", measure)

    work = counting(number("a", []), number("bb", [True]), number("ccc", []))
    with refused(KeyboardInterrupt):
        finish(work, tmp_path)
    assert done == ["a"]
    stored = json.loads((tmp_path / "numbers.json").read_text())
    assert stored["missing"] == ["bb", "ccc"]
    assert "Missing: bb, ccc" in (tmp_path / "numbers.md").read_text()
    assert finish(work, tmp_path).missing == []
    assert done == ["a", "bb", "ccc"]
    finish(work, tmp_path)
    assert done == ["a", "bb", "ccc"]


def test_a_cell_that_fails_does_not_stop_the_others_and_is_tried_again(tmp_path: Path) -> None:
    broken = [True]

    def measure(run: object) -> dict:
        if broken:
            raise RuntimeError("the loss is\nnot finite")
        return {"n": 1}

    first = Cell("numbers/a", measure)
    work = counting(
        first, Cell("numbers/b", lambda run: {"n": 2}, after=(first,)), Cell("numbers/c", lambda run: {"n": 3})
    )
    result = finish(work, tmp_path)
    assert [row.status for row in result.sections[0].rows] == ["RuntimeError: the loss is not finite", "", ""]
    assert result.missing == ["a", "b"]  # what waits for it is not tried
    broken.clear()
    assert finish(work, tmp_path).missing == []


def _hold(out: Path, ready: object) -> None:
    store, cell = CellStore(out, "numbers"), Cell("numbers/a", lambda run: {"n": 1})
    with store.taken(cell) as mine:
        ready.put(mine)
        signal.pause()


def test_processes_share_the_cells_out_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    other = context.Process(target=_hold, args=(tmp_path, ready))
    other.start()
    assert ready.get(timeout=120)
    work, log = counting(*(Cell(f"numbers/{name}", lambda run: {"n": 1}) for name in "ab")), list[str]()
    assert finish(work, tmp_path, log).missing == ["a"]
    message(log[-1])
    os.kill(other.pid, signal.SIGKILL)
    other.join()
    assert finish(work, tmp_path).missing == []


def test_torchrun_does_not_join_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    from parsecaps.system.processes import find_processes

    for name, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    assert find_processes(1).count == 2
    with alone():
        assert (find_processes(1).count, find_processes(1).is_main) == (1, True)
    assert find_processes(1).rank == 1


def test_one_split_is_written_and_no_other_taken_later(tmp_path: Path) -> None:
    data = open_data("phantom:n=80,size=32")
    scale = Scale(1, 64, train=30, test=10)
    first = share_cases(tmp_path, "phantom:n=80,size=32", data, scale)
    assert len(first.rows("train")) <= 30
    assert len(first.rows("test")) <= 10
    again = share_cases(tmp_path, "phantom:n=80,size=32", data, scale)
    assert (again.division, again.size, again.channels) == (first.division, 32, 3)
    text = first.split_file.read_text()
    first.split_file.write_text(text.replace(",train", ",test", 1))
    with refused(ValueError):
        share_cases(tmp_path, "phantom:n=80,size=32", data, scale)


def test_few_patients_take_part_whole_and_of_all_classes() -> None:
    data = open_data("phantom:n=400,size=32")
    division = divide(data).division
    small = thin(data, division, {"train": 60, "test": 20})
    rows = rows_of(small, "train")
    assert 40 <= len(rows) <= 60
    assert {data.cases[row].label for row in rows} == {0, 1}
    patients = {data.cases[row].patient for row in rows}
    whole = [row for row in rows_of(division, "train") if data.cases[row].patient in patients]
    assert rows == whole
    assert set(rows_of(small, "val")) == set(rows_of(division, "val"))


def test_what_was_settled_stays(tmp_path: Path) -> None:
    assert settle(tmp_path, {"epochs": 7, "seed": 0}) == {"epochs": 7, "seed": 0}
    with refused(ValueError):
        settle(tmp_path, {"epochs": 7, "seed": 1})
