"""The supplement's table on the reconstruction loss: what it is worth, and what the decoder draws."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from parsecaps.data.case_set import CaseSet
from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import write_binary
from parsecaps.metrics import Score, means
from parsecaps.metrics.bootstrap import POSITIVE
from parsecaps.metrics.predictions import group_numbers
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_parameters
from parsecaps.paper.needs import CEMRI
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Scale, Table, Work, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.published import Published, published
from parsecaps.paper.trained import (
    EQUAL,
    Protocol,
    keep_scores,
    one_set,
    paired,
    scores_of,
    status_of,
    usual_notes,
)
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_grids import Panel, draw_panels
from parsecaps.run import Run

CONCEPTS = 8  # unnamed, from which the decoder draws
COLUMNS = (
    Column("weight 0.005", "ParseCaps", training={"reconstruction_weight": 0.005}, unnamed=CONCEPTS),
    Column("weight 0.001", "ParseCaps", training={"reconstruction_weight": 0.001}, unnamed=CONCEPTS),
    Column("without", "ParseCaps", note="no concepts, no decoder"),
)
REFERENCE = "without"
PROTOCOL = Protocol(
    "reconstruction",
    {"quick": Scale(2, 64, train=240, test=200), "hour": Scale(None, 64), "full": Scale(300, 112)},
)
MEASURES = (
    Measure("accuracy", "accuracy"),
    Measure("error", "squared error of a pixel", 4, "", lower_is_better=True),
    Measure("parameters", "parameters, with the decoder", 0, "", intervals=False),
)
_PICTURES, _SHOWN = "drawn.npz", 8


class Reconstruction(Table):
    """The supplement's table."""

    name = "reconstruction"
    title = "What the reconstruction loss is worth, and what the decoder draws"
    paper = "ParseCaps paper, supplement, table on the reconstruction loss"
    needs = (CEMRI,)

    def prepare(self, request: Request, log: Log) -> "Drawn":
        columns = choose_columns(COLUMNS, request.models, self.name)
        cases = one_set(PROTOCOL, request, self.needs, self.name)
        if cases.data.concepts:  # with labels the concepts learn from them, and nothing is reconstructed
            raise ValueError(
                f"{cases.path} names its concepts, so nothing would be reconstructed (Sec. 3.3.2); give data "
                f"without, as {CEMRI.title}"
            )
        grid = PROTOCOL.cells(request, columns, [cases], log, measure=_measure)
        printed = published(self.name) if cases.data.source == CEMRI.name else Published()
        return Drawn(self, request, columns, cases, {column: cell for (_, column), cell in grid.items()}, printed)

    def loads(self, request: Request) -> list[Load]:
        columns = choose_columns(COLUMNS, request.models, self.name)
        return [replace(load, concepts=load.column.unnamed) for load in PROTOCOL.loads(request, columns, self.needs)]


@dataclass
class Drawn(Work):
    """A row for each weight, and test images with what was drawn of them."""

    table: Table
    request: Request
    columns: Sequence[Column]
    on: Cases
    by_column: Mapping[str, Cell]
    printed: Published

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return list(self.by_column.values())

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        printed = self.printed
        tests = paired(self.request.out, self.by_column, measured, reference=REFERENCE)
        rows = []
        for column in self.columns:
            cell = self.by_column[column.name]
            kept, scores = measured.get(cell.name), scores_of(measured.get(cell.name))
            theirs = printed.figure(column.name, "accuracy")
            figures = {"accuracy": Figure.of(None if scores is None else scores["accuracy"], theirs)}
            if kept is not None:
                own = kept["error"]
                figures["error"] = Figure.of(None if own is None else Score(**own), scale=1)
                figures["parameters"] = Figure(kept["parameters"], published=printed.figure(column.name, "parameters"))
            trained = {} if kept is None else kept["trained"]
            status, by = status_of(column, cell, measured, failed), printed.by(column.name)
            rows.append(Row(column.name, figures, status, trained, tests.get(column.name), by, column.note))
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            [*EQUAL, f"{CONCEPTS} concepts that nobody named are reconstructed from."],
            [Section("Figures", MEASURES, rows, self.on.describe(), REFERENCE if tests else "")],
            notes=usual_notes(self.request, [self.on]),
            remarks=[f"{printed.source}.", *printed.remarks] if printed.rows else [],
            missing=[name for name, cell in self.by_column.items() if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        drawn = {
            name: read_arrays(self.request.out / "cells" / cell.name / _PICTURES)
            for name, cell in self.by_column.items()
            if cell.name in measured and measured[cell.name]["error"] is not None
        }
        if drawn:
            first = next(iter(drawn.values()))
            rows = [[Panel(each) for each in first["image"]]]
            rows += [[Panel(each) for each in arrays["drawn"]] for arrays in drawn.values()]
            draw_panels(path, rows, sides=["test image", *drawn])


def _measure(cases: Cases, run: Run) -> Measured:
    """Scores, and the squared error of the decoder's pictures where there is a decoder."""
    kept = dict(keep_scores(run, cases.rows("test")))
    model = run.model.network
    kept |= {"parameters": sum(count_parameters(model)), "error": None}
    if getattr(model, "decoder", None) is None:
        return kept
    tested = CaseSet(run.data, run.prepared, cases.rows("test"))
    spread = tested.subset(np.unique(np.linspace(0, len(tested) - 1, _SHOWN).astype(int)))
    errors, image = [], spread.images
    for start in range(0, len(tested), 32):
        some = tested.subset(range(start, min(start + 32, len(tested))))
        batch, drawn = _draw(model, some.images)
        errors.append((drawn - batch).square().mean((1, 2, 3)).double().numpy())
    group = group_numbers(tested.patients)
    [error] = means(np.concatenate(errors)[:, None], group, bounds=POSITIVE, resamples=1000, seed=0).scores()
    pictures = _draw(model, image)[1].clamp(0, 1).mul(255).round().byte().numpy()
    with write_binary(run.folder / _PICTURES, private=True) as file:
        np.savez_compressed(file, image=image, drawn=pictures)
    return {**kept, "error": vars(error)}


@torch.inference_mode()
def _draw(model: PretrainedModel, images: np.ndarray) -> tuple[Tensor, Tensor]:
    """Images (B, C, H, W) uint8 in [0, 1], and what the decoder draws of them."""
    batch = torch.from_numpy(images).float() / 255
    drawn = model(batch, reconstruct=True).reconstruction
    assert drawn is not None
    return batch, drawn
