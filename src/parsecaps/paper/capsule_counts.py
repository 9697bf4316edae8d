"""Table 4: how many capsules of which dimension each layer has. Nothing is trained; the layers are counted."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from parsecaps.models import find_model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_parameters, summarize
from parsecaps.paper.cells import AS_PRINTED, Cell, Column, Load, Log, Measured, Request
from parsecaps.paper.needs import TableCases
from parsecaps.paper.table import PaperTable, Work, published
from parsecaps.report.reproduced import Figure, Measure, Reproduced, TableRow, TableSection
from parsecaps.report.reproduced_pictures import draw_layers
from parsecaps.run import Run

COLUMNS = (
    Column("ParseCaps", "ParseCaps", preset="medical"),
    AS_PRINTED,
    Column("ParseCaps (MNIST)", "ParseCaps", preset="digits"),
    Column("DeepCaps", "DeepCaps", preset="medical"),
    Column("OrthCaps", "OrthCaps", preset="deep", note="after the paper's description"),
)
_TYPES = {"DeepCaps": lambda config: [config["types"]] * len(config["dims"])}
_TYPES["OrthCaps"] = lambda config: [config["types"], *config["blocks"]]
_NO_LAYER = ("top normalisation", "pruning")  # they pass capsules on
LAYERS = ("primary capsules", "block 1", "block 2", "block 3", "class capsules")


class Capsules(PaperTable):
    """A section for each model, a row for each of its layers."""

    name = "capsules"
    title = "Capsules by layer: number and dimension"
    paper = "ParseCaps paper, Tab. 4"
    columns = COLUMNS
    measures = (
        Measure("types", "types of capsules", 0, "", intervals=False),
        Measure("n", "capsules n", 0, "", intervals=False),
        Measure("d", "dimension d", 0, "", intervals=False),
    )
    terms = ("Counted in one pass of one image; n of a layer on a grid counts every position.",)
    always_printed = True
    usual_notes = 0

    def loads(self, request: Request) -> list[Load]:
        return []

    def sets(self, request: Request) -> list[TableCases]:
        return []

    def grid(
        self, request: Request, columns: Sequence[Column], sets: Sequence[TableCases], log: Log
    ) -> dict[tuple[str, str], Cell]:
        return {("", each.name): Cell(f"capsules/{each.name}", partial(_count, each)) for each in columns}

    def sections(self, work: Work) -> list[TableSection]:
        return [self._section(work, column, work.grid["", column.name]) for column in work.columns]

    def _section(self, work: Work, column: Column, cell: Cell) -> TableSection:
        kept, printed = work.kept(cell), dict(zip(LAYERS, _printed(column.published or column.name), strict=False))
        of_types, about, rows = column.kind in _TYPES, "", []
        if kept is None:
            rows.append(TableRow(column.name, {}, work.failed.get(cell.name, "missing")))
        else:
            about = f"{kept['parameters']} parameters, images of {kept['size']} px"
        for layer in () if kept is None else kept["layers"]:
            n, d = printed.get(layer["layer"], (None, None))
            figures = {"n": Figure(layer["n"], published=None if of_types else n), "d": Figure(layer["d"], published=d)}
            if of_types:  # which the paper counts there
                figures["types"] = Figure(layer["types"], published=n)
            rows.append(TableRow(layer["layer"], figures))
        if column.kind == "DeepCaps":  # other layers
            about += "; as printed (n | d): " + ", ".join(f"{name} {n} | {d}" for name, (n, d) in printed.items())
        return TableSection(column.name, self.measures if of_types else self.measures[1:], rows, about)

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        layers = {
            name: [(each.get("types", each["n"]), each["d"]) for each in kept["layers"]]
            for (_, name), cell in work.grid.items()
            if (kept := work.kept(cell)) is not None
        }
        draw_layers(path, layers, {name: _printed(name) for name in layers if name != "DeepCaps"})


def _printed(column: str) -> list[tuple[int, int]]:
    stored: Any = published("capsules").rows.get(column, {}).get("layers", [])
    return [(int(n), int(d)) for n, d in stored]


def _count(column: Column, run: Run) -> Measured:
    classes = 10 if column.preset == "digits" else 3
    preset = column.model_section(224, 0)["preset"]
    model = find_model(column.kind).from_preset(preset, num_classes=classes, num_concepts=0, **column.settings)
    layers = capsule_layers(model)
    if column.kind in _TYPES:
        for layer, each in zip(layers, [*_TYPES[column.kind](model.config), classes], strict=True):
            layer["types"] = each
    return {"layers": layers, "parameters": str(count_parameters(model)), "size": model.image_size}


def capsule_layers(model: PretrainedModel) -> list[dict[str, Any]]:
    """The layers that give capsules, in the order of the pass; of a block of cells its last."""
    found: dict[str, dict[str, Any]] = {}
    for row in summarize(model):
        if row.n is not None and row.name not in _NO_LAYER:
            name = "class capsules" if row.name == "FullyCaps" else row.name.partition(" cell ")[0]
            found[name] = {"layer": name, "n": row.n, "d": row.d}
    return list(found.values())
