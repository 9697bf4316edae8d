"""Table 4: how many capsules of which dimension each layer has. Nothing is trained; the layers are counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from parsecaps.models import all_models, find_model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_parameters, summarize
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Table, Work, choose_columns, nearest
from parsecaps.paper.published import published
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_pictures import draw_layers
from parsecaps.run import Run

COLUMNS = (
    Column("ParseCaps", "ParseCaps", preset="medical"),
    Column("ParseCaps (MNIST)", "ParseCaps", preset="digits"),
    Column("DeepCaps", "DeepCaps", preset="medical"),
    Column("OrthCaps", "OrthCaps", preset="medical", note="after the paper's description"),
)
_NO_LAYER = ("top normalisation", "pruning")  # they pass capsules on
LAYERS = ("primary capsules", "block 1", "block 2", "block 3", "class capsules")


class Capsules(Table):
    """Table 4."""

    name = "capsules"
    title = "Capsules by layer: number and dimension"
    paper = "ParseCaps paper, Tab. 4"
    needs = ()
    untrained = len(COLUMNS)

    def prepare(self, request: Request, log: Log) -> "CountedCapsules":
        columns = choose_columns(COLUMNS, request.models, self.name)
        for column in columns:
            if column.kind not in all_models():
                raise ValueError(f"there is no model {column.kind!r}; {nearest(column.kind, list(all_models()))}")
        cells = {column.name: Cell(f"capsules/{column.name}", partial(_count, column)) for column in columns}
        return CountedCapsules(self, request, columns, cells)

    def loads(self, request: Request) -> list[Load]:
        return []


@dataclass
class CountedCapsules(Work):
    """The layers of each model."""

    table: Table
    request: Request
    columns: Sequence[Column]
    by_column: Mapping[str, Cell]

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return list(self.by_column.values())

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        printed = published(self.table.name)
        sections = []
        measures = (
            Measure("n", "capsules n", 0, "", intervals=False),
            Measure("d", "dimension d", 0, "", intervals=False),
        )
        for column in self.columns:
            kept = measured.get(self.by_column[column.name].name)
            theirs = dict(zip(LAYERS, _printed(column.name), strict=False)) if column.kind == "ParseCaps" else {}
            rows = []
            for layer in [] if kept is None else kept["layers"]:
                n, d = theirs.get(layer["layer"], (None, None))
                figures = {"n": Figure(layer["n"], published=n), "d": Figure(layer["d"], published=d)}
                rows.append(Row(layer["layer"], figures))
            if kept is None:
                rows = [Row(column.name, {}, failed.get(self.by_column[column.name].name, "missing"))]
            about = "" if kept is None else f"{kept['parameters']} parameters, images of {kept['size']} px"
            about += "" if theirs or not _printed(column.name) else _as_printed(column.name)
            sections.append(Section(column.name, measures, rows, about))
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            ["Counted in one pass of one image; n of a layer on a grid counts every position."],
            sections,
            remarks=[f"{printed.source}.", *printed.remarks],
            missing=[name for name, cell in self.by_column.items() if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        layers = {
            column.name: [(each["n"], each["d"]) for each in kept["layers"]]
            for column in self.columns
            if (kept := measured.get(self.by_column[column.name].name)) is not None
        }
        draw_layers(path, layers, {name: _printed(name) for name in layers if name.startswith("ParseCaps")})


def _printed(column: str) -> list[tuple[int, int]]:
    stored: Any = dict(published("capsules").rows).get(column, {}).get("layers", [])
    return [(int(n), int(d)) for n, d in stored]


def _as_printed(column: str) -> str:
    """The printed layers of a network whose layers are counted in another way there."""
    pairs = zip(LAYERS, _printed(column), strict=False)
    return "; as printed (n | d): " + ", ".join(f"{name} {n} | {d}" for name, (n, d) in pairs)


def _count(column: Column, run: Run) -> Measured:
    classes = 10 if column.preset == "digits" else 3
    preset = column.preset or "medical"
    model = find_model(column.kind).from_preset(preset, num_classes=classes, num_concepts=0, **column.settings)
    return {"layers": capsule_layers(model), "parameters": str(count_parameters(model)), "size": model.image_size}


def capsule_layers(model: PretrainedModel) -> list[dict[str, Any]]:
    """The layers that give capsules, in the order of the pass; of a block of cells its last."""
    found: dict[str, dict[str, Any]] = {}
    for row in summarize(model):
        if row.n is not None and row.name not in _NO_LAYER:
            name = "class capsules" if row.name == "FullyCaps" else row.name.partition(" cell ")[0]
            found[name] = {"layer": name, "n": row.n, "d": row.d}
    return list(found.values())
