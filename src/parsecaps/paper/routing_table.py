"""Table 7: four routings in the same three-layer network, by accuracy, speed, work and memory (Sec. 4.3.3)."""

from itertools import product
from pathlib import Path

from parsecaps.config import Config, load_config
from parsecaps.paper.cells import Cell, Column, Log, Measured, Request, Scale
from parsecaps.paper.needs import MNIST, TableCases
from parsecaps.paper.protocol import Protocol
from parsecaps.paper.routing_speed import BATCH_SIZES, WANTED, measure_routings
from parsecaps.paper.table import PaperTable, Work
from parsecaps.paper.timing import QUICK, Effort
from parsecaps.report.reproduced import Figure, Measure, Reproduced, TableRow, TableSection
from parsecaps.report.reproduced_pictures import draw_speeds

COLUMNS = tuple(
    Column(name, "ThreeLayerCaps", settings={"routing": name.lower()}, recipe="capsnet")
    for name in ("SAA", "attention", "self-attention", "dynamic")
)
_EFFORTS = {"quick": QUICK, "hour": Effort(), "full": Effort(rounds=10, seconds=20.0)}
_WORDS, _PHASES = {"routing": "routing alone", "network": "whole net"}, ("forward", "training")
WORK = (
    Measure("multiply_adds", "multiply-adds of the routing", 2, "M", lower_is_better=True, intervals=False),
    Measure("network_multiply_adds", "of the net", 1, "M", lower_is_better=True, intervals=False),
    Measure("parameters", "parameters of the routing", 0, "", lower_is_better=True, intervals=False),
    Measure("memory", "memory of a training step of the routing, batch 128", 0, "MB", True, intervals=False),
)


class RoutingTable(PaperTable):
    """Accuracy from trainings, all else from one run of all routings in turns."""

    name = "routing"
    title = "Routings: how right, how fast, at what cost"
    paper = "ParseCaps paper, Tab. 7"
    needs = (MNIST,)
    columns = COLUMNS
    protocol = Protocol(
        "routing",
        {"quick": Scale(1, 28, train=3000, test=1000), "hour": Scale(None, 28), "full": Scale(100, 28)},
        optimizers=("usual",),
        batch=128,
    )
    measures = (Measure("accuracy", "accuracy"),)
    reference = "SAA"
    heading = "Accuracy"
    terms = (
        "One convolution 3 x 3 of stride 2, 1,152 primary capsules of 8, class capsules of 16; only the routing "
        "differs. One optimizer, digits moved by up to two pixels, equal epochs, the last is kept.",
    )
    more_notes = (
        "All routings take turns in one run; a figure is the fastest of many calls. With other work on the machine, or "
        "several processes at this table, the ratios hold and the images a second do not.",
        f"Wanted of SAA routing alone: {WANTED['dynamic']:g} x dynamic, {WANTED['attention']:g} x attention.",
    )

    def choose(self, request: Request) -> list[Column]:
        found = super().choose(request)
        for column in found:
            if column not in COLUMNS:
                known = ", ".join(each.name for each in COLUMNS)
                raise ValueError(f"{column.name} is no routing; choose some of {known}")
        return found

    def cells(self, work: Work, log: Log) -> list[Cell]:
        name = f"{self.protocol.folder(work.request).name}/speed"
        effort = _EFFORTS[work.request.budget]
        return [Cell(name, lambda run: measure_routings(effort, log=log).as_dict()), *work.grid.values()]

    def change(self, config: Config, cases: TableCases) -> Config:
        """The changes of CapsNet's own recipe: moves of up to two pixels."""
        changes = load_config("capsnet").augmentation
        assert changes is not None
        return config.change("augmentation", **changes.model_dump())

    def sections(self, work: Work) -> list[TableSection]:
        speed = work.kept(work.cells[0])
        more = [] if speed is None else [_ratios(work, speed), _speeds(work, speed), _work(work, speed)]
        return [*super().sections(work), *more]

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        speed = work.kept(work.cells[0])
        if speed is None:
            return
        found = _images_a_second(speed)
        panels: dict[str, dict[str, dict[tuple[str, int], float]]] = {}
        for scope, phase, size, column in product(_WORDS, _PHASES, BATCH_SIZES, work.columns):
            speeds = panels.setdefault(_WORDS[scope], {}).setdefault(column.name, {})
            speeds[phase, size] = found[_routing(column), f"{scope} {phase} {size}"]
        draw_speeds(path, panels)


def _ratios(work: Work, speed: Measured) -> TableSection:
    measures, rows = _timed(digits=2), []
    ratios = {(r["other"], f"{r['scope']} {r['phase']} {r['batch_size']}"): r["ratio"] for r in speed["ratios"]}
    ours = work.printed.figure("SAA", "images_a_second")
    for column in (each for each in work.columns if each.name != "SAA"):
        theirs = work.printed.figure(column.name, "images_a_second")
        printed = ours / theirs if ours and theirs else None  # of the network, at a batch not given
        figures = {}
        for key in (each.key for each in measures):
            published = printed if key.startswith("network forward") else None
            figures[key] = Figure(ratios[_routing(column), key], published=published)
        rows.append(TableRow(column.name, figures, by=work.printed.by(column.name)))
    title = "SAA routing: how many times as many images a second as"
    return TableSection(title, measures, rows, f"{speed['threads']} threads")


def _speeds(work: Work, speed: Measured) -> TableSection:
    measures, found, rows = _timed(digits=0), _images_a_second(speed), []
    for column in work.columns:
        theirs = work.printed.figure(column.name, "images_a_second")
        note = "" if theirs is None else f"the paper has {theirs:g}, on other machines, at a batch not given"
        figures = {each.key: Figure(found[_routing(column), each.key]) for each in measures}
        rows.append(TableRow(column.name, figures, note=note))
    return TableSection("Images a second here", measures, rows)


def _work(work: Work, speed: Measured) -> TableSection:
    costs, rows = {each["routing"]: each for each in speed["costs"]}, []
    for column in work.columns:
        cost = costs[_routing(column)]
        theirs = work.printed.figure(column.name, "flops")
        note = "" if theirs is None else f"the paper has {theirs / 1e6:,.0f} M, of what is not said"
        in_unit = {each.key: 1e6 if each.unit else 1 for each in WORK}
        figures = {key: Figure(None if cost[key] is None else cost[key] / one) for key, one in in_unit.items()}
        rows.append(TableRow(column.name, figures, note=note))
    return TableSection("Work for one image, and memory", WORK, rows)


def _timed(digits: int) -> list[Measure]:
    return [
        Measure(f"{scope} {phase} {size}", f"{_WORDS[scope]}, {phase}, batch {size}", digits, "", intervals=False)
        for scope, phase, size in product(_WORDS, _PHASES, BATCH_SIZES)
    ]


def _routing(column: Column) -> str:
    return str(column.settings["routing"])


def _images_a_second(speed: Measured) -> dict[tuple[str, str], float]:
    return {
        (each["routing"], f"{each['scope']} {each['phase']} {each['batch_size']}"): each["images_per_second"]
        for each in speed["times"]
        if not each["part"]
    }
