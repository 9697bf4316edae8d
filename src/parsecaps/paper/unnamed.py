"""Concepts that nobody labelled: what they show (Sec. 4.5.1), and what drawing the image from them is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parsecaps.data.case_set import CaseSet
from parsecaps.discovery.discover import discover_run
from parsecaps.explain.case_memory import first_of_patients
from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import write_binary
from parsecaps.metrics import means
from parsecaps.metrics.bootstrap import POSITIVE
from parsecaps.metrics.predictions import group_numbers
from parsecaps.models import all_models, find_model
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.models.summary import count_parameters
from parsecaps.paper.cells import AS_PRINTED, Cell, Column, Log, Measured, Request, Scale
from parsecaps.paper.needs import CEMRI, TableCases
from parsecaps.paper.protocol import Protocol, keep_scores
from parsecaps.paper.table import EQUAL, PaperTable, Work
from parsecaps.report.reproduced import Figure, Measure, Reproduced, TableRow, TableSection
from parsecaps.report.reproduced_pictures import Panel, draw_panels
from parsecaps.run import Run

CONCEPTS = 8
SEEDS, SHOWN = 2, 6
_SCALES = {"quick": Scale(2, 64, train=240, test=200), "hour": Scale(None, 112), "full": Scale(300, 112)}
_WEIGHT = {"losses": {"reconstruction": 0.005}}
_PROTOTYPES, _PICTURES, _DRAWN = "prototypes.npz", "drawn.npz", 8


class Discovered(PaperTable):
    """A row for each concept of the first of two networks, which differ in their seeds."""

    name = "discovery"
    title = "Concepts that nobody labelled: what they show, and whether another seed finds them"
    paper = "ParseCaps paper, Sec. 4.5.1, the figure of concept capsules without ground truth"
    needs = (CEMRI,)
    columns = (Column("ParseCaps", "ParseCaps"),)
    protocol = Protocol("discovery", _SCALES)
    measures = (
        Measure("found_again", "found by the other seed (correlation)", 2, "", intervals=False),
        Measure("chance", "by chance, patients exchanged", 2, "", intervals=False),
        Measure("class_chance", "by chance, within classes", 2, "", intervals=False),
        Measure("std", "spread of the presence", 3, "", intervals=False),
        Measure("purity", "strongest patients of one class", 0, intervals=False),
        Measure("purity_chance", "of one class by chance", 0, intervals=False),
        Measure("inside", "map inside the mask", 0, intervals=False),
        Measure("share", "mask's share of the image", 0, intervals=False),
        Measure("activated", "of the images shown, also shown by activation", 0, intervals=False),
    )
    terms = (*EQUAL[1:], f"{SEEDS} seeds; a concept is shown by the training images in which it is most present.")
    usual_notes = 1
    more_notes = (
        "A concept that another seed finds no better than chance within classes says no more than the class.",
        "The picture shows training images: treat it as the data.",
    )
    without_names = "there are none to discover; give data without"
    remarks = (
        "The paper shows prototypes of mini-ImageNet, named by eye, without numbers: the images that maximise the "
        "activation of each concept capsule. Its activation is the softmax in the global capsule, ours the presence. "
        "Both are counted, one image of a patient; the picture of a network as printed is by its activation.",
    )

    def choose(self, request: Request) -> list[Column]:
        found = super().choose(request)
        for column in found:
            if not find_model(column.kind).has_capsules:
                known = ", ".join(name for name, kind in all_models().items() if kind.has_capsules)
                raise ValueError(f"{column.kind} has no concept capsules to discover; choose one of {known}")
        if len(found) > 1:
            raise ValueError("discovery is about one network; give --models once")
        # keeps concepts apart that nobody labelled; not in the paper
        training: dict[str, Any] = {} if found[0].as_printed else {"losses": {"diversity": 0.3}}
        return [
            replace(found[0], name=f"seed {seed}", unnamed=CONCEPTS, training={**training, "seed": seed})
            for seed in range(request.seed, request.seed + SEEDS)
        ]

    def cells(self, work: Work, log: Log) -> list[Cell]:
        runs = tuple(work.grid.values())
        folders = [work.folder(cell) for cell in runs]
        printed = any(column.as_printed for column in work.columns)
        name = f"{self.protocol.folder(work.request).name}/look"
        look = Cell(name, partial(_look, folders, by_activation=printed), after=runs)
        return [*runs, look]

    def sections(self, work: Work) -> list[TableSection]:
        look = work.cells[-1]
        found = work.kept(look)
        if found is None:
            rows = [TableRow("concepts", {}, work.failed.get(look.name, "missing"))]
        else:
            rows = [_row(each) for each in found["concepts"]]
        sections = [TableSection("Concepts", self.measures, rows, work.sets[0].describe())]
        trained = []
        for name, (_, kept) in work.finished().items():
            accuracy = Figure(100 * kept["scores"]["overall"]["accuracy"]["value"])
            trained.append(TableRow(name, {"accuracy": accuracy}, trained=kept["trained"]))
        if trained:
            sections.append(TableSection("Networks", (Measure("accuracy", "accuracy"),), trained))
        return sections

    def notes(self, work: Work) -> list[str]:
        first, *others = super().notes(work)
        found = work.kept(work.cells[-1])
        vary = [] if found is None else [f"The {CONCEPTS} vary as {found['effective_concepts']:.1f} unrelated would."]
        return [first, *vary, *others]

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        look = work.cells[-1]
        found = work.kept(look)
        if found is None:
            return
        arrays = read_arrays(work.folder(look) / _PROTOTYPES)
        rows, sides = [], []
        for j, concept in enumerate(found["concepts"]):
            own = arrays["concept"] == j
            rows.append([Panel(i, heat=h) for i, h in zip(arrays["image"][own], arrays["heat"][own], strict=True)])
            again = concept.get("found_again")
            sides.append(concept["name"] + ("" if again is None else f"\nfound again {again:.2f}"))
        draw_panels(path, rows, sides=sides)


def _row(concept: Mapping[str, Any]) -> TableRow:
    figures = {key: Figure(concept.get(key)) for key in ("found_again", "chance", "class_chance", "std", "activated")}
    shares = {"purity": ("purity", "share"), "purity_chance": ("purity", "chance")}
    for key, (of, name) in {**shares, "inside": ("overlap", "inside"), "share": ("overlap", "share")}.items():
        figures[key] = Figure(None if concept[of] is None else 100 * concept[of][name])
    return TableRow(concept["name"], figures, note="hardly varies" if concept["dead"] else "")


def _look(folders: Sequence[Path], run: Run, *, by_activation: bool) -> Measured:
    found = discover_run(folders[0], folders[1:])
    cases, memory = Run(folders[0]).cases("train"), found.memory
    images, heat, number, shared = [], [], [], []
    for concept in found.concepts:
        present = [each.case.row for each in concept.prototypes][:SHOWN]
        activated = first_of_patients(memory, -memory.global_capsule[:, concept.index], SHOWN)
        shared.append(100 * len({*present} & {*activated}) / len(present))
        rows = activated if by_activation else present
        images += list(cases.subset(rows).images)
        heat += list(found.maps(rows, concept.index))
        number += [concept.index] * len(rows)
    with write_binary(run.folder / _PROTOTYPES, private=True) as file:
        np.savez_compressed(file, image=np.stack(images), heat=np.stack(heat).astype(np.float32), concept=number)
    kept = found.as_dict()
    for one, share in zip(kept["concepts"], shared, strict=True):
        one["activated"] = share
    return {**kept, "run": folders[0].name, "others": [each.name for each in folders[1:]]}


class ReconstructionTable(PaperTable):
    """The supplement's table: a row for each weight of the loss, and test images with what was drawn of them."""

    name = "reconstruction"
    title = "What the reconstruction loss is worth, and what the decoder draws"
    paper = "ParseCaps paper, supplement, table on the reconstruction loss"
    needs = (CEMRI,)
    columns = (
        Column("weight 0.005", "ParseCaps", training=_WEIGHT, unnamed=CONCEPTS),
        Column("weight 0.001", "ParseCaps", training={"losses": {"reconstruction": 0.001}}, unnamed=CONCEPTS),
        Column("without", "ParseCaps", note="no concepts, no decoder"),
        replace(
            AS_PRINTED, name="weight 0.005, as printed", training=_WEIGHT, unnamed=CONCEPTS, published="weight 0.005"
        ),
        replace(AS_PRINTED, name="without, as printed", published="without"),
    )
    protocol = Protocol("reconstruction", _SCALES)
    measures = (
        Measure("accuracy", "accuracy"),
        Measure("error", "squared error of a pixel", 4, "", lower_is_better=True),
        Measure("parameters", "parameters, with the decoder", 0, "", intervals=False),
    )
    reference = "without"
    terms = (*EQUAL, f"{CONCEPTS} concepts that nobody named are reconstructed from.")
    without_names = f"nothing would be reconstructed (Sec. 3.3.2); give data without, as {CEMRI.title}"

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        drawn = {
            name: read_arrays(work.folder(cell) / _PICTURES)
            for name, (cell, kept) in work.finished().items()
            if kept["error"] is not None
        }
        if drawn:
            first = next(iter(drawn.values()))
            rows = [[Panel(each) for each in first["image"]]]
            rows += [[Panel(each) for each in arrays["drawn"]] for arrays in drawn.values()]
            draw_panels(path, rows, sides=["test image", *drawn])

    def measure(self, request: Request, cases: TableCases, run: Run) -> Measured:
        """Scores, and the squared error of the decoder's pictures where there is a decoder."""
        kept, model = keep_scores(run, cases.tested), run.model.network
        parameters = sum(count_parameters(model))
        if model.decoder is None:
            return {**kept, "parameters": parameters, "error": None}
        tested = CaseSet(run.data, run.prepared, cases.tested)
        errors = []
        for batch in tested.batches(32):
            drawn = _draw(model, batch.image)
            errors.append((drawn - batch.image).square().mean((1, 2, 3)).double().numpy())
        group = group_numbers(tested.patients)
        [error] = means(np.concatenate(errors)[:, None], group, bounds=POSITIVE, resamples=1000, seed=0).scores()
        shown = tested.subset(np.unique(np.linspace(0, len(tested) - 1, _DRAWN).astype(int)))
        [batch] = shown.batches(_DRAWN)
        pictures = _draw(model, batch.image).clamp(0, 1).mul(255).round().byte().numpy()
        with write_binary(run.folder / _PICTURES, private=True) as file:
            np.savez_compressed(file, image=shown.images, drawn=pictures)
        return {**kept, "parameters": parameters, "error": vars(error)}


@torch.inference_mode()
def _draw(model: PretrainedModel, images: Tensor) -> Tensor:
    """What the decoder draws of images (B, C, H, W) in [0, 1]."""
    drawn: Tensor | None = model(images, reconstruct=True).reconstruction
    assert drawn is not None
    return drawn
