"""The figure of concepts that nobody labelled: prototypes, and whether another seed finds the same (Sec. 4.5.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from parsecaps.discover import discover_run
from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import write_binary
from parsecaps.models import all_models, find_model
from parsecaps.paper.needs import CEMRI
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Scale, Table, Work, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.trained import EQUAL, Protocol, keep_scores, one_set, status_of, usual_notes
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_grids import Panel, draw_panels
from parsecaps.run import Run

CONCEPTS, SEEDS, SHOWN = 8, 2, 6
PROTOCOL = Protocol(
    "discovery",
    {"quick": Scale(2, 64, train=240, test=200), "hour": Scale(None, 64), "full": Scale(300, 112)},
)
MEASURES = (
    Measure("found_again", "found by the other seed (correlation)", 2, "", intervals=False),
    Measure("chance", "by chance, patients exchanged", 2, "", intervals=False),
    Measure("class_chance", "by chance, within classes", 2, "", intervals=False),
    Measure("std", "spread of the presence", 3, "", intervals=False),
    Measure("purity", "strongest patients of one class", 0, intervals=False),
    Measure("purity_chance", "of one class by chance", 0, intervals=False),
    Measure("inside", "map inside the mask", 0, intervals=False),
    Measure("share", "mask's share of the image", 0, intervals=False),
)
_PICTURES = "prototypes.npz"


def _columns(request: Request) -> list[Column]:
    found = choose_columns((Column("ParseCaps", "ParseCaps"),), request.models, "discovery")
    for column in found:
        if not find_model(column.kind).has_capsules:
            known = ", ".join(name for name, kind in all_models().items() if kind.has_capsules)
            raise ValueError(f"{column.kind} has no concept capsules to discover; choose one of {known}")
    if len(found) > 1:
        raise ValueError("discovery is about one network; give --models once")
    training = {"diversity_weight": 0.3}  # which keeps concepts apart that nobody labelled (`functional.losses`)
    seeds = [request.seed + i for i in range(SEEDS)]
    return [
        replace(found[0], name=f"seed {seed}", unnamed=CONCEPTS, training={**training, "seed": seed}) for seed in seeds
    ]


class Discovered(Table):
    """The figure of unlabelled concepts."""

    name = "discovery"
    title = "Concepts that nobody labelled: what they show, and whether another seed finds them"
    paper = "ParseCaps paper, Sec. 4.5.1, the figure of concept capsules without ground truth"
    needs = (CEMRI,)

    def prepare(self, request: Request, log: Log) -> "Prototypes":
        columns = _columns(request)
        cases = one_set(PROTOCOL, request, self.needs, self.name)
        if cases.data.concepts:
            raise ValueError(f"{cases.path} names its concepts, so there are none to discover; give data without")
        grid = PROTOCOL.cells(request, columns, [cases], log, measure=_measure)
        runs = [grid[cases.name, column.name] for column in columns]
        folders = [request.out / "cells" / cell.name for cell in runs]
        look = Cell(f"{PROTOCOL.folder(request).name}/look", partial(_look, folders), after=tuple(runs))
        return Prototypes(self, request, columns, cases, runs, look)

    def loads(self, request: Request) -> list[Load]:
        loads = PROTOCOL.loads(request, _columns(request), self.needs)
        return [replace(load, concepts=CONCEPTS) for load in loads]


@dataclass
class Prototypes(Work):
    """A row for each concept of the first network."""

    table: Table
    request: Request
    columns: Sequence[Column]
    on: Cases
    runs: Sequence[Cell]
    look: Cell

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return [*self.runs, self.look]

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        rows = []
        found = measured.get(self.look.name)
        for concept in [] if found is None else found["concepts"]:
            rows.append(Row(concept["name"], _figures(concept), note="" if not concept["dead"] else "hardly varies"))
        if found is None:
            rows = [Row("concepts", {}, failed.get(self.look.name, "missing"))]
        trained = [
            Row(column.name, {}, status_of(column, cell, measured, failed), measured[cell.name]["trained"])
            for column, cell in zip(self.columns, self.runs, strict=True)
            if cell.name in measured
        ]
        sections = [Section("Concepts", MEASURES, rows, self.on.describe())]
        if trained:
            accuracy = Measure("accuracy", "accuracy")
            scored = [
                replace(
                    row,
                    figures={"accuracy": Figure(100 * measured[cell.name]["scores"]["overall"]["accuracy"]["value"])},
                )
                for row, cell in zip(trained, [c for c in self.runs if c.name in measured], strict=True)
            ]
            sections.append(Section("Networks", (accuracy,), scored))
        effective = (
            [] if found is None else [f"The {CONCEPTS} vary as {found['effective_concepts']:.1f} unrelated would."]
        )
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            [*EQUAL[1:], f"{SEEDS} seeds; a concept is shown by the training images in which it is most present."],
            sections,
            notes=[
                *usual_notes(self.request, [self.on])[:1],
                *effective,
                "A concept that another seed finds no better than chance within classes says no more than the class.",
                "The picture shows training images: treat it as the data.",
            ],
            remarks=[
                "The paper shows prototypes of mini-ImageNet, named by eye, without numbers; by what is not said."
            ],
            missing=[cell.name.partition("/")[2] for cell in self.cells if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        if self.look.name not in measured:
            return
        arrays = read_arrays(self.request.out / "cells" / self.look.name / _PICTURES)
        rows, sides = [], []
        for j, concept in enumerate(measured[self.look.name]["concepts"]):
            own = arrays["concept"] == j
            rows.append([Panel(i, heat=h) for i, h in zip(arrays["image"][own], arrays["heat"][own], strict=True)])
            again = concept.get("found_again")
            sides.append(concept["name"] + ("" if again is None else f"\nfound again {again:.2f}"))
        draw_panels(path, rows, sides=sides)


def _figures(concept: Mapping[str, Any]) -> dict[str, Figure]:
    purity, overlap = concept["purity"], concept["overlap"]
    numbers: dict[str, float | None] = {
        "found_again": concept.get("found_again"),
        "chance": concept.get("chance"),
        "class_chance": concept.get("class_chance"),
        "std": concept["std"],
        "purity": None if purity is None else 100 * purity["share"],
        "purity_chance": None if purity is None else 100 * purity["chance"],
        "inside": None if overlap is None else 100 * overlap["inside"],
        "share": None if overlap is None else 100 * overlap["share"],
    }
    return {key: Figure(value) for key, value in numbers.items()}


def _measure(cases: Cases, run: Run) -> Measured:
    return keep_scores(run, cases.rows("test"))


def _look(folders: Sequence[Path], run: Run) -> Measured:
    """The concepts of the first network by its training cases, and how far the others found them."""
    found = discover_run(folders[0], folders[1:])
    cases = Run(folders[0]).cases("train")
    images, heat, number = [], [], []
    for concept in found.concepts:
        rows = [each.case.row for each in concept.prototypes][:SHOWN]
        images += list(cases.subset(rows).images)
        heat += list(found.maps(rows, concept.index))
        number += [concept.index] * len(rows)
    with write_binary(run.folder / _PICTURES, private=True) as file:
        np.savez_compressed(file, image=np.stack(images), heat=np.stack(heat).astype(np.float32), concept=number)
    kept = found.as_dict()
    return {**kept, "run": folders[0].name, "others": [each.name for each in folders[1:]]}
