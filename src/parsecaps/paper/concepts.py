"""The concept figures: where a network sees its concepts, with and without the tree, against masks (Sec. 4.5.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parsecaps.audit.cases import AuditCases, find_masks
from parsecaps.audit.maps import dense_maps, join, localise, measure_maps
from parsecaps.data.case_set import CaseSet
from parsecaps.explain.attribution import Target, attribution_maps, has_routes
from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import write_binary
from parsecaps.metrics import Score
from parsecaps.paper.needs import PHANTOM
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Scale, Table, Work, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.skin import COLUMNS, concept_sets
from parsecaps.paper.trained import (
    EQUAL,
    REFERENCE,
    Protocol,
    keep_scores,
    paired,
    scores_of,
    status_of,
    usual_notes,
)
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_grids import Panel, draw_panels
from parsecaps.run import Run

SHOWN = 5  # cases in the picture
PROTOCOL = Protocol(
    "concepts",
    {"quick": Scale(2, 64, train=300, test=100), "hour": Scale(None, 64), "full": Scale(300, 112)},
    concepts=True,
)
_MAPPED = {"quick": 24, "hour": 100, "full": 200}  # cases with maps
MEASURES = (
    Measure("pointing", "highest point inside the mask"),
    Measure("ratio", "map inside, as times the mask's share", 2, "", intervals=True),
    Measure("iou", "overlap (IoU)"),
    Measure("mean_auroc", "concept AUROC, mean"),
    Measure("accuracy", "accuracy"),
)
_PICTURES = "concepts.npz"


def _columns(request: Request) -> list[Column]:
    return choose_columns(COLUMNS, request.models or ("ParseCaps", "FlatCaps"), "concepts")


class Concepts(Table):
    """The two figures of concept capsules."""

    name = "concepts"
    title = "Where concepts are seen, with the tree and without"
    paper = "ParseCaps paper, Sec. 4.5.1, the figures of concept capsules with ground truth and of the baseline"
    needs = (PHANTOM,)

    def prepare(self, request: Request, log: Log) -> "ConceptMaps":
        columns = _columns(request)
        sets = concept_sets(PROTOCOL, request, self.needs)
        if len(sets) > 1:
            raise ValueError(f"concepts takes one data set, and {len(sets)} were given; give --data once")
        [cases] = sets
        if cases.data.concept_masks is None and all(case.mask is None for case in cases.data.cases):
            raise ValueError(
                f"{cases.path} has no masks, by which maps are judged; the phantom, PH2 and LIDC have some"
            )
        measure = partial(_measure, _MAPPED[request.budget])
        grid = PROTOCOL.cells(request, columns, [cases], log, measure=measure)
        return ConceptMaps(self, request, columns, cases, {column: cell for (_, column), cell in grid.items()})

    def loads(self, request: Request) -> list[Load]:
        return PROTOCOL.loads(request, _columns(request), self.needs)


@dataclass
class ConceptMaps(Work):
    """How well the maps of each network find its concepts, and some of them to look at."""

    table: Table
    request: Request
    columns: Sequence[Column]
    on: Cases
    by_column: Mapping[str, Cell]

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return list(self.by_column.values())

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        rows, tests = [], paired(self.request.out, self.by_column, measured)
        for column in self.columns:
            cell = self.by_column[column.name]
            kept = measured.get(cell.name)
            figures: dict[str, Figure] = {}
            if kept is not None:
                scores = scores_of(kept)
                assert scores is not None
                figures = {key: Figure.of(Score(**kept[key]), scale=1 if key == "ratio" else 100) for key in _LOCATED}
                figures |= {key: Figure.of(scores.single.get(key)) for key in ("mean_auroc", "accuracy")}
            trained = {} if kept is None else kept["trained"]
            note = column.note if kept is None else f"maps: {kept['method']}"
            rows.append(Row(column.name, figures, status_of(column, cell, measured, failed), trained, note=note))
        notes = [
            *usual_notes(self.request, [self.on]),
            "Maps of the concepts that a test image truly has, against their masks; where only the lesion is outlined, "
            "it stands for each of its concepts.",
        ]
        if tests:
            against = "; ".join(f"{name} {found.difference:+.1f} points" for name, found in tests.items())
            notes.append(f"Accuracy against {REFERENCE}: {against}.")
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            EQUAL,
            [Section("Concept maps against masks", MEASURES, rows, self.on.describe())],
            notes=notes,
            remarks=[
                "The paper shows pictures without numbers, of PH2; it says that the baseline looks at edges instead."
            ],
            missing=[name for name, cell in self.by_column.items() if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        found = {
            name: read_arrays(self.request.out / "cells" / cell.name / _PICTURES)
            for name, cell in self.by_column.items()
            if cell.name in measured
        }
        first = next(iter(found.values()))
        count = len(first["image"])
        heads = [self.on.data.concepts[int(j)] for j in first["concept"]]
        rows = [[Panel(first["image"][i], mask=first["mask"][i]) for i in range(count)]]
        rows += [
            [Panel(each["image"][i], heat=each["heat"][i], mask=each["mask"][i]) for i in range(count)]
            for each in found.values()
        ]
        draw_panels(path, rows, heads=heads, sides=["outlined", *found])


_LOCATED = ("pointing", "ratio", "iou")


def _measure(most: int, cases: Cases, run: Run) -> Measured:
    """Localisation of the concept maps over at most so many test cases, and the first of them to look at."""
    kept = keep_scores(run, cases.rows("test"))
    model = run.model
    order = np.random.default_rng(0).permutation(len(cases.rows("test")))
    rows = [cases.rows("test")[i] for i in order]
    masks = find_masks(run.data, model)
    some = AuditCases(model, CaseSet(run.data, run.prepared, rows[:most]))
    method = "routes" if has_routes(model.network) else "grad-cam"
    maker = partial(attribution_maps, method=method)
    measured, shown = [], list[dict[str, Any]]()
    for batch, image in some.batches():
        truth = masks.of("concepts", some.rows_of(batch))
        assert truth is not None
        has = [[Target("concepts", int(j)) for j in np.flatnonzero(each.any((1, 2)))] for each in truth]
        maps = dense_maps(some, maker, image, has)[:, : truth.shape[1]].double().cpu().numpy()
        measured.append(measure_maps(maps, truth))
        for i, targets in enumerate(has):
            if targets and len(shown) < SHOWN:
                j = targets[len(shown) % len(targets)].index  # another concept each time, the same for all networks
                shown.append({"image": image[i], "mask": truth[i, j], "heat": maps[i, j], "concept": j})
    found = localise(join(measured), some.group, list(model.concepts))
    _save(run.folder / _PICTURES, shown)
    located = {key: vars(getattr(found, key)) for key in _LOCATED}
    return {**kept, **located, "method": method, "mapped": len(some)}


def _save(path: Path, shown: Sequence[Mapping[str, Any]]) -> None:
    """Pictures as arrays: image (n, C, H, W) uint8, mask (n, H, W) bool, heat (n, H, W)."""
    images = torch.stack([each["image"] for each in shown]).mul(255).round().byte().cpu().numpy()
    masks, heat = (np.stack([each[key] for each in shown]) for key in ("mask", "heat"))
    with write_binary(path, private=True) as file:
        np.savez_compressed(
            file, image=images, mask=masks, heat=heat.astype(np.float32), concept=[each["concept"] for each in shown]
        )
