"""The redundancy figure: how alike the capsules of a layer are, in each network with capsules (supplement).

The trainings are those of `classification`: where they are there already, nothing is trained again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parsecaps.audit.redundancy import NUM_BINS, capsule_similarity
from parsecaps.data.case_set import CaseSet
from parsecaps.metrics import Score, means
from parsecaps.metrics.bootstrap import SIGNED_SHARE
from parsecaps.metrics.predictions import group_numbers
from parsecaps.paper.classification import COLUMNS, PROTOCOL
from parsecaps.paper.needs import CEMRI
from parsecaps.paper.plan import Cell, Column, Load, Log, Measured, Request, Table, Work, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.trained import EQUAL, TWO_OPTIMIZERS, one_set, status_of, trained_with, usual_notes
from parsecaps.report.reproduced import Figure, Measure, Reproduced, Row, Section
from parsecaps.report.reproduced_pictures import draw_curves_of
from parsecaps.run import Run

IMAGES = 64
_WITH_CAPSULES = ("ParseCaps", "FlatCaps", "CapsNet", "DeepCaps", "OrthCaps", "EfficientCapsNet", "ARCapsNet")
_HEADS = ("classes", "concepts")
_TOP, _PRIMARY = "top", "primary"
MEASURES = (
    Measure(_TOP, "similarity in the top layer below the classes", 3, "", lower_is_better=True),
    Measure(_PRIMARY, "similarity in the primary layer", 3, "", lower_is_better=True),
)


def _columns(request: Request) -> list[Column]:
    wanted = request.models or _WITH_CAPSULES
    return choose_columns(COLUMNS, wanted, "redundancy")


class Redundancy(Table):
    """The figure of the supplement."""

    name = "redundancy"
    title = "Redundancy: how alike the capsules of a layer are"
    paper = "ParseCaps paper, supplement, figure on redundancy"
    needs = (CEMRI,)

    def prepare(self, request: Request, log: Log) -> "Similarities":
        columns = _columns(request)
        cases = one_set(PROTOCOL, request, self.needs, self.name)
        grid = PROTOCOL.cells(request, columns, [cases], log, measure=_measure)
        return Similarities(self, request, columns, cases, {column: cell for (_, column), cell in grid.items()})

    def loads(self, request: Request) -> list[Load]:
        return PROTOCOL.loads(request, _columns(request), self.needs)


@dataclass
class Similarities(Work):
    """A curve for each network, and its mean."""

    table: Table
    request: Request
    columns: Sequence[Column]
    on: Cases
    by_column: Mapping[str, Cell]

    @property
    def cells(self) -> list[Cell]:  # type: ignore[override]
        return list(self.by_column.values())

    def result(self, measured: Mapping[str, Measured], failed: Mapping[str, str]) -> Reproduced:
        rows = []
        for column in self.columns:
            cell = self.by_column[column.name]
            kept = measured.get(cell.name)
            figures, note = {}, column.note
            if kept is not None:
                figures = {key: Figure.of(Score(**kept[key]["mean"]), scale=1) for key in (_TOP, _PRIMARY)}
                layer = kept[_TOP]
                note = f"top layer {layer['layer']}: {layer['capsules']:,} x {layer['dim']}"
            trained = {} if kept is None else kept["trained"]
            rows.append(Row(column.name, figures, status_of(column, cell, measured, failed), trained, note=note))
        return Reproduced(
            self.table.name,
            self.table.title,
            self.table.paper,
            self.request.budget,
            [*EQUAL, TWO_OPTIMIZERS, "The trainings are those of `parsecaps reproduce classification`."],
            [Section("Mean similarity", MEASURES, rows, self.on.describe())],
            notes=[
                *usual_notes(self.request, [self.on])[:1],
                f"Cosine of every two capsules of a layer in an image, over {IMAGES} test images at most; intervals "
                "are over patients. The lower, the less redundant.",
                "The networks have different numbers of capsules: the paper gave all the same number of primary ones, "
                "which published networks do not have.",
            ],
            remarks=[
                "The paper prints the curves as a picture, without numbers; it says that ParseCaps is furthest left."
            ],
            missing=[name for name, cell in self.by_column.items() if cell.name not in measured],
        )

    def draw(self, result: Reproduced, measured: Mapping[str, Measured], path: Path) -> None:
        edges = np.linspace(-1, 1, NUM_BINS + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        found = {name: kept for name, cell in self.by_column.items() if (kept := measured.get(cell.name)) is not None}
        panels = {
            title: {name: (middle, 100 * np.asarray(kept[key]["share"])) for name, kept in found.items()}
            for key, title in ((_PRIMARY, "primary capsules"), (_TOP, "top capsules below the classes"))
        }
        draw_curves_of(path, panels, below="similarity of two capsules", beside="share of pairs, %")


def _measure(cases: Cases, run: Run) -> Measured:
    """The histograms of the primary layer and of the last one below the heads, and their means over patients."""
    model, tested = run.model.network, CaseSet(run.data, run.prepared, cases.rows("test"))
    tested = tested.subset(np.unique(np.linspace(0, len(tested) - 1, IMAGES).astype(int)))
    by_layer: dict[str, list[tuple[float, list[float]]]] = {}
    shapes: dict[str, tuple[int, int]] = {}
    for batch in tested.batches(1):  # one by one, so that means can be over patients
        for layer in capsule_similarity(model, [batch.image]):
            if not layer.layer.startswith(_HEADS):
                mean = np.nan if layer.mean is None else layer.mean
                by_layer.setdefault(layer.layer, []).append((mean, layer.share))
                shapes[layer.layer] = layer.capsules, layer.dim
    group = group_numbers(tested.patients)
    names = list(by_layer)
    kept = {}
    for key, name in ((_PRIMARY, names[0]), (_TOP, names[-1])):
        cosines = np.array([[value] for value, _ in by_layer[name]])
        [overall] = means(cosines, group, bounds=SIGNED_SHARE, resamples=1000, seed=0).scores()
        share = np.mean([each for _, each in by_layer[name]], axis=0).tolist()
        kept[key] = {
            "layer": name,
            "capsules": shapes[name][0],
            "dim": shapes[name][1],
            "mean": vars(overall),
            "share": share,
        }
    return {**kept, "trained": trained_with(run), "split": run.about["split_hash"]}
