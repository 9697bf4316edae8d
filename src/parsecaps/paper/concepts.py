"""The concept figures: where a network sees its concepts, with and without the tree, against masks (Sec. 4.5.1)."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from parsecaps.audit.audit_cases import AuditCases, find_masks, joined
from parsecaps.audit.maps import dense_maps, localise, measure_maps
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.explain.attribution import Target, attribution_maps, has_routes
from parsecaps.files.untrusted import read_arrays
from parsecaps.files.writing import write_binary
from parsecaps.paper.cells import Column, Measured, Request, Scale
from parsecaps.paper.needs import PHANTOM, Cases
from parsecaps.paper.protocol import Protocol, keep_scores
from parsecaps.paper.skin import COLUMNS
from parsecaps.paper.table import REFERENCE, Table, Work
from parsecaps.report.reproduced import Measure, Reproduced
from parsecaps.report.reproduced_pictures import Panel, draw_panels
from parsecaps.run import Run

SHOWN = 5  # cases in the picture
_MAPPED = {"quick": 24, "hour": 100, "full": 200}  # cases with maps
_LOCATED = ("pointing", "ratio", "iou")
_PICTURES = "concepts.npz"


class Concepts(Table):
    """How well the maps of each network find its concepts, and some of them to look at."""

    name = "concepts"
    title = "Where concepts are seen, with the tree and without"
    paper = "ParseCaps paper, Sec. 4.5.1, the figures of concept capsules with ground truth and of the baseline"
    needs = (PHANTOM,)
    columns = COLUMNS
    usual_columns = ("ParseCaps", "ParseCaps, as printed", "FlatCaps")
    protocol = Protocol(
        "concepts",
        {"quick": Scale(2, 64, train=300, test=100), "hour": Scale(None, 112), "full": Scale(300, 112)},
        concepts=True,
    )
    measures = (
        Measure("pointing", "highest point inside the mask"),
        Measure("ratio", "map inside, as times the mask's share", 2, "", intervals=True),
        Measure("iou", "overlap (IoU)"),
        Measure("mean_auroc", "concept AUROC, mean"),
        Measure("accuracy", "accuracy"),
    )
    reference = ""
    heading = "Concept maps against masks"
    more_notes = (
        "Maps of the concepts that a test image truly has, against their masks; where only the lesion is outlined, it "
        "stands for each of its concepts.",
    )
    remarks = ("The paper shows pictures without numbers, of PH2; it says that the baseline looks at edges instead.",)

    def check(self, path: str, data: DataSet) -> None:
        super().check(path, data)
        if data.concept_masks is None and all(case.mask is None for case in data.cases):
            raise ValueError(f"{path} has no masks, by which maps are judged; the phantom, PH2 and LIDC have some")

    def note(self, column: Column, kept: Measured | None) -> str:
        return column.note if kept is None else f"maps: {kept['method']}"

    def notes(self, work: Work) -> list[str]:
        tests = work.paired(work.by_column())
        against = "; ".join(f"{name} {found.difference:+.1f} points" for name, found in tests.items())
        return [*super().notes(work), *([f"Accuracy against {REFERENCE}: {against}."] if tests else [])]

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        found = {name: read_arrays(work.folder(cell) / _PICTURES) for name, (cell, _) in work.finished().items()}
        first = next(iter(found.values()))
        shown = range(len(first["image"]))
        heads = [work.sets[0].data.concepts[int(j)] for j in first["concept"]]
        rows = [[Panel(first["image"][i], mask=first["mask"][i]) for i in shown]]
        rows += [
            [Panel(each["image"][i], heat=each["heat"][i], mask=each["mask"][i]) for i in shown]
            for each in found.values()
        ]
        draw_panels(path, rows, heads=heads, sides=["outlined", *found])

    def measure(self, request: Request, cases: Cases, run: Run) -> Measured:
        """Localisation of the concept maps over some test cases, and the pictures of the first."""
        kept = keep_scores(run, cases.tested)
        model, order = run.model, np.random.default_rng(0).permutation(len(cases.tested))
        masks = find_masks(run.data, model)
        rows = [cases.tested[i] for i in order][: _MAPPED[request.budget]]
        some = AuditCases(model, CaseSet(run.data, run.prepared, rows))
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
        found = localise(joined(measured), some.average(), list(model.concepts))
        images = torch.stack([each["image"] for each in shown]).mul(255).round().byte().cpu().numpy()
        mask, heat, concept = (np.stack([each[key] for each in shown]) for key in ("mask", "heat", "concept"))
        with write_binary(run.folder / _PICTURES, private=True) as file:
            np.savez_compressed(file, image=images, mask=mask, heat=heat.astype(np.float32), concept=concept)
        located = {key: vars(getattr(found, key)) for key in _LOCATED}
        return {**kept, **located, "method": method, "mapped": len(some)}
