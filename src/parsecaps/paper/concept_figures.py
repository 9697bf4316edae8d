"""The concept figures: where a network sees its concepts, with and without the tree, against masks (Sec. 4.5.1)."""

from collections.abc import Sequence
from dataclasses import replace
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
from parsecaps.metrics import means
from parsecaps.metrics.bootstrap import POSITIVE
from parsecaps.metrics.predictions import group_numbers
from parsecaps.paper.cells import Column, Load, Measured, Request, Scale
from parsecaps.paper.needs import PH2, PHANTOM, Need, TableCases, find
from parsecaps.paper.protocol import Protocol, keep_scores
from parsecaps.paper.skin import COLUMNS
from parsecaps.paper.table import REFERENCE, PaperTable, Work
from parsecaps.report.reproduced import Measure, Reproduced
from parsecaps.report.reproduced_pictures import Panel, draw_panels
from parsecaps.run import Run

SHOWN = 5  # cases in the picture
_MAPPED = {"quick": 24, "hour": 100, "full": 200}  # cases with maps
_LOCATED = ("pointing", "ratio", "iou")
_PICTURES = "concepts.npz"


class ConceptFigures(PaperTable):
    """How well the maps of each network find its concepts, and some of them to look at."""

    name = "concepts"
    title = "Where concepts are seen, with the tree and without"
    paper = "ParseCaps paper, Sec. 4.5.1, the figures of concept capsules with ground truth and of the baseline"
    needs = (PH2, PHANTOM)  # the first that is here
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
        Measure("edges", "map on edges, as times the image's mean gradient", 2, "", intervals=True),
        Measure("mean_auroc", "concept AUROC, mean"),
        Measure("accuracy", "accuracy"),
    )
    reference = ""
    heading = "Concept maps against masks"
    more_notes = (
        "Maps of the concepts that a test image truly has, against their masks; where only the lesion is outlined, it "
        "stands for each of its concepts.",
        "On edges: the image's gradient where a map looks, over its mean in the image. 1 is no preference; the higher, "
        "the more a network sees edges.",
    )
    remarks = ("The paper shows pictures without numbers, of PH2; it says that the baseline sees edges instead.",)

    def loads(self, request: Request) -> list[Load]:
        return self.protocol.loads(request, self.choose(request), self._here()[:1], self.fits)

    def sets(self, request: Request) -> Sequence[TableCases]:
        return super().sets(request if request.data else replace(request, data=(find(self._here()[0]) or "",)))

    def _here(self) -> list[Need]:
        return [need for need in self.needs if find(need)]

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

    def measure(self, request: Request, cases: TableCases, run: Run) -> Measured:
        """Localisation of the concept maps over some test cases, and the pictures of the first."""
        kept = keep_scores(run, cases.tested)
        model, order = run.model, np.random.default_rng(0).permutation(len(cases.tested))
        masks = find_masks(run.data, model)
        rows = [cases.tested[i] for i in order][: _MAPPED[request.budget]]
        some = AuditCases(model, CaseSet(run.data, run.prepared, rows))
        method = "routes" if has_routes(model.network) else "grad-cam"
        maker = partial(attribution_maps, method=method)
        measured, shown, edges = [], list[dict[str, Any]](), list[np.ndarray]()
        for batch, image in some.batches():
            truth = masks.of("concepts", some.rows_of(batch))
            assert truth is not None
            has = [[Target("concepts", int(j)) for j in np.flatnonzero(each.any((1, 2)))] for each in truth]
            maps = dense_maps(some, maker, image, has)[:, : truth.shape[1]].double().cpu().numpy()
            measured.append(measure_maps(maps, truth))
            edges.append(on_edges(maps, image.mean(1).double().cpu().numpy()))
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
        group = group_numbers([run.data.cases[row].patient for row in rows])
        [edge] = means(np.concatenate(edges)[:, None], group, bounds=POSITIVE, resamples=1000, seed=0).scores()
        return {**kept, **located, "edges": vars(edge), "method": method, "mapped": len(some)}


def on_edges(maps: np.ndarray, image: np.ndarray) -> np.ndarray:
    """The image's gradient where its maps look, over its mean in the image; NaN where there is no map or no edge.

    Shapes:
        - maps: (B, m, size, size), not negative, 0 where there is none; image: (B, size, size)
        - output: (B,)
    """
    down, across = np.gradient(image, axis=(1, 2))
    edge = np.hypot(down, across)
    with np.errstate(invalid="ignore", divide="ignore"):
        looked = (maps * edge[:, None]).sum((2, 3)) / maps.sum((2, 3)) / edge.mean((1, 2))[:, None]
    found = np.ma.masked_invalid(looked).mean(1)
    return np.asarray(np.ma.filled(found, np.nan))
