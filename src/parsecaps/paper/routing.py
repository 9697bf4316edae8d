"""Table 7: four routings in the same three-layer network, by accuracy, speed, work and memory (Sec. 4.3.3)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from parsecaps.config import Config, load_config
from parsecaps.paper.needs import MNIST
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Scale, Table, Work, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.published import Published, published
from parsecaps.paper.routing_speed import BATCH_SIZES, WANTED, measure_routings
from parsecaps.paper.timing import QUICK, Effort
from parsecaps.paper.trained import Protocol, one_set, paired, scores_of, status_of, usual_notes
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_pictures import draw_speeds
from parsecaps.run import Run

REFERENCE = "SAA"
COLUMNS = tuple(
    Column(name, "ThreeLayerCaps", settings={"routing": routing}, recipe="capsnet")
    for name, routing in (
        ("SAA", "saa"),
        ("attention", "attention"),
        ("self-attention", "self-attention"),
        ("dynamic", "dynamic"),
    )
)
PROTOCOL = Protocol(
    "routing",
    {"quick": Scale(1, 28, train=3000, test=1000), "hour": Scale(None, 28), "full": Scale(100, 28)},
    optimizers=("usual",),
    batch=128,
)
_EFFORTS = {"quick": QUICK, "hour": Effort(), "full": Effort(rounds=10, seconds=20.0)}
_TIMED = (("routing", "forward"), ("routing", "training"), ("network", "forward"), ("network", "training"))
_WORDS = {"routing": "routing alone", "network": "whole net"}
ACCURACY = Measure("accuracy", "accuracy")
WORK = (
    Measure("multiply_adds", "multiply-adds of the routing", 2, "M", lower_is_better=True, intervals=False),
    Measure("network_multiply_adds", "of the net", 1, "M", lower_is_better=True, intervals=False),
    Measure("parameters", "parameters of the routing", 0, "", lower_is_better=True, intervals=False),
    Measure("memory", "memory of a training step of the routing, batch 128", 0, "MB", True, intervals=False),
)


def _columns(request: Request) -> list[Column]:
    """Those that were asked for, which must be routings."""
    found = choose_columns(COLUMNS, request.models, "routing")
    for column in found:
        if column not in COLUMNS:
            raise ValueError(f"{column.name} is no routing; choose some of {', '.join(each.name for each in COLUMNS)}")
    return found


class Routing(Table):
    """Table 7."""

    name = "routing"
    title = "Routings: how right, how fast, at what cost"
    paper = "ParseCaps paper, Tab. 7"
    needs = (MNIST,)
    most_epochs = 100

    def prepare(self, request: Request, log: Log) -> "Routings":
        columns = _columns(request)
        cases = one_set(PROTOCOL, request, self.needs, self.name)
        grid = PROTOCOL.cells(request, columns, [cases], log, change=_moved)
        speed = Cell(f"{PROTOCOL.folder(request).name}/speed", partial(_speed, _EFFORTS[request.budget], log))
        cells = {column: cell for (_, column), cell in grid.items()}
        printed = published(self.name) if cases.data.source == MNIST.name else Published()
        return Routings(self, request, columns, cases, cells, speed, printed)

    def loads(self, request: Request) -> list[Load]:
        return PROTOCOL.loads(request, _columns(request), self.needs)


@dataclass
class Routings(Work):
    """Accuracy from trainings, all else from one run of all routings in turns."""

    table: Table
    request: Request
    columns: Sequence[Column]
    on: Cases
    by_column: Mapping[str, Cell]
    speed: Cell
    printed: Published

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return [self.speed, *self.by_column.values()]

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        printed, speed = self.printed, measured.get(self.speed.name)
        tests = paired(self.request.out, self.by_column, measured, reference=REFERENCE)
        rows = []
        for column in self.columns:
            cell = self.by_column[column.name]
            kept, scores = measured.get(cell.name), scores_of(measured.get(cell.name))
            own = None if scores is None else scores["accuracy"]
            rows.append(
                Row(
                    column.name,
                    {"accuracy": Figure.of(own, printed.figure(column.name, "accuracy"))},
                    status_of(column, cell, measured, failed),
                    {} if kept is None else kept["trained"],
                    tests.get(column.name),
                    printed.by(column.name),
                )
            )
        sections = [Section("Accuracy", [ACCURACY], rows, self.on.describe(), REFERENCE if tests else "")]
        if speed is not None:
            sections += [self._ratios(speed), self._speeds(speed), self._work(speed)]
        notes = [
            *usual_notes(self.request, [self.on]),
            "All routings take turns in one run; a figure is the fastest of many calls. With other work on the "
            "machine, or several processes at this table, the ratios hold and the images a second do not.",
            f"Wanted of SAA routing alone: {WANTED['dynamic']:g} x dynamic, {WANTED['attention']:g} x attention.",
        ]
        missing = [cell.name.partition("/")[2] for cell in self.cells if cell.name not in measured]
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            [
                "One convolution 3 x 3 of stride 2, 1,152 primary capsules of 8, class capsules of 16; only the "
                "routing differs. One optimizer, digits moved by up to two pixels, equal epochs, the last is kept.",
            ],
            sections,
            notes=notes,
            remarks=[f"{printed.source}.", *printed.remarks] if printed.rows else [],
            missing=missing,
        )

    def _ratios(self, speed: Measured) -> Section:
        """How many times as many images a second SAA has; the paper's ratio is of its network, at a batch not given."""
        measures = [
            Measure(f"{scope} {phase} {size}", f"{_WORDS[scope]}, {phase}, batch {size}", 2, "", intervals=False)
            for scope, phase in _TIMED
            for size in BATCH_SIZES
        ]
        ratios = {(r["other"], f"{r['scope']} {r['phase']} {r['batch_size']}"): r["ratio"] for r in speed["ratios"]}
        ours, rows = self.printed.figure(REFERENCE, "images_a_second"), []
        for column in self.columns:
            routing = column.settings.get("routing")
            theirs = self.printed.figure(column.name, "images_a_second")
            if column.name == REFERENCE or routing is None:
                continue
            ratio = ours / theirs if ours and theirs else None
            figures = {
                each.key: Figure(
                    ratios[routing, each.key], published=ratio if each.key.startswith("network forward") else None
                )
                for each in measures
            }
            rows.append(Row(column.name, figures, by=self.printed.by(column.name)))
        return Section(
            "SAA routing: how many times as many images a second as", measures, rows, f"{speed['threads']} threads"
        )

    def _speeds(self, speed: Measured) -> Section:
        measures = [
            Measure(f"{scope} {phase} {size}", f"{_WORDS[scope]}, {phase}, batch {size}", 0, "", intervals=False)
            for scope, phase in _TIMED
            for size in BATCH_SIZES
        ]
        found = _images_a_second(speed)
        rows = []
        for column in self.columns:
            theirs = self.printed.figure(column.name, "images_a_second")
            note = "" if theirs is None else f"the paper has {theirs:g}, on other machines, at a batch not given"
            figures = {each.key: Figure(found[str(column.settings.get("routing")), each.key]) for each in measures}
            rows.append(Row(column.name, figures, note=note))
        return Section("Images a second here", measures, rows)

    def _work(self, speed: Measured) -> Section:
        costs = {each["routing"]: each for each in speed["costs"]}
        rows = []
        for column in self.columns:
            cost = costs[str(column.settings.get("routing"))]
            theirs = self.printed.figure(column.name, "flops")
            note = "" if theirs is None else f"the paper has {theirs / 1e6:,.0f} M, of what is not said"
            figures = {
                "multiply_adds": Figure(cost["multiply_adds"] / 1e6),
                "network_multiply_adds": Figure(cost["network_multiply_adds"] / 1e6),
                "parameters": Figure(cost["parameters"]),
                "memory": Figure(None if cost["memory"] is None else cost["memory"] / 1e6),
            }
            rows.append(Row(column.name, figures, note=note))
        return Section("Work for one image, and memory", WORK, rows)

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        if self.speed.name not in measured:
            return
        found = _images_a_second(measured[self.speed.name])
        panels = {
            _WORDS[scope]: {
                column.name: {
                    (phase, size): found[str(column.settings.get("routing")), f"{scope} {phase} {size}"]
                    for own, phase in _TIMED
                    if own == scope
                    for size in BATCH_SIZES
                }
                for column in self.columns
            }
            for scope in ("routing", "network")
        }
        draw_speeds(path, panels)


def _images_a_second(speed: Measured) -> dict[tuple[str, str], float]:
    return {
        (each["routing"], f"{each['scope']} {each['phase']} {each['batch_size']}"): each["images_per_second"]
        for each in speed["times"]
        if not each["part"]
    }


def _moved(config: Config) -> Config:
    """The changes of CapsNet's own recipe: moves of up to two pixels."""
    changes = load_config("capsnet").augmentation
    assert changes is not None
    return config.change("augmentation", **changes.model_dump())


def _speed(effort: Effort, log: Log, run: Run) -> Measured:
    found: dict[str, Any] = measure_routings(effort, log=log).as_dict()
    return found
