"""The price of reasons, a table of ours: on one pretrained trunk, networks with reasons beside one that has none."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from parsecaps.audit.audit_cases import AuditCases, find_masks, joined
from parsecaps.audit.concept_audit import audit_concepts
from parsecaps.audit.maps import dense_maps, localise, map_makers, measure_maps
from parsecaps.config import Config
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet
from parsecaps.explain.attribution import Target
from parsecaps.metrics import Difference, Score, Scores
from parsecaps.metrics.metric import compute
from parsecaps.metrics.predictions import Predictions
from parsecaps.metrics.registry import find_metric
from parsecaps.model import Model
from parsecaps.models import find_model
from parsecaps.paper.cells import Column, Measured, Request, Scale
from parsecaps.paper.needs import CEMRI, Need, TableCases, data_name
from parsecaps.paper.protocol import Protocol, keep_scores
from parsecaps.paper.table import PaperTable, Work
from parsecaps.prediction.predict import predict_cases
from parsecaps.report.reproduced import Figure, Measure, TableRow, TableSection
from parsecaps.run import Run

LINEAR = "linear head"
SEEDS = {"quick": 1, "hour": 1, "full": 3}
_SEED = ", seed "  # between the name of a column and its seed
_BACKBONE = {"backbone": "TrunkCNN", "backbone_preset": "medical"}
_UNNAMED = 8
_MAPPED = 200  # test cases of the pointing game at most
_TRAINED = {"wbcatt": 500, "ham": 800}  # images to train on: of HAM10000 a tenth
_AUROC = find_metric("macro_auroc")
_RESAMPLES = 1000


def _manifest(
    folder: str, title: str, where: str, images: int, side: int, channels: int, classes: int, **more: Any
) -> Need:
    return Need("manifest", title, where, images, side, channels, classes, folder=folder, **more)


@dataclass(frozen=True)
class Drawn:
    """An AUROC, or a mean of several: of all patients, and of resamples of them (R,)."""

    value: float
    draws: np.ndarray
    patients: int
    means: int

    @classmethod
    def of(cls, predictions: Predictions, seed: int) -> "Drawn":
        """That of a model; models with the same cases and seed get the same resamples."""
        cases = _AUROC.cases.of(predictions)
        assert cases is not None
        values, draws = compute(cases, [_AUROC.function], _RESAMPLES, seed)
        patients = cases.patients(_AUROC.counted(cases))
        own = float(values[_AUROC.function][0, 0]), draws[_AUROC.function][0]
        return cls(*own, patients, _AUROC.means(cases))

    @classmethod
    def mean(cls, parts: "Sequence[Drawn]") -> "Drawn":
        """The mean over seeds or data sets."""
        value, draws = np.mean([each.value for each in parts]), np.mean([each.draws for each in parts], axis=0)
        return cls(float(value), draws, min(each.patients for each in parts), max(each.means for each in parts))

    def figure(self) -> Figure:
        return Figure.of(Score.of(self.value, self.draws, 0, patients=self.patients, means=self.means), scale=1)

    def minus(self, other: "Drawn") -> Difference:
        """The paired difference to another one of the same patients."""
        draws = self.draws - other.draws
        return Difference.of(other.value, self.value, draws, self.patients, means=self.means)


class Price(PaperTable):
    """The means over all data sets and over those with concepts, and a section for each set."""

    name = "price"
    title = "The price of reasons: networks on one pretrained trunk"
    paper = "Not in the paper"
    needs = (
        _manifest("isic", "ISIC 2017", "https://challenge.isic-archive.com", 2000, 224, 3, 3, concepts=5),
        _manifest("bus", "BUS-BRA", "https://zenodo.org/records/8231412", 1275, 300, 1, 2),
        _manifest("lidc", "LIDC-IDRI", "https://www.cancerimagingarchive.net", 1800, 71, 1, 2, concepts=7),
        CEMRI,
        Need("wbcatt", "WBCAtt", "https://github.com/apple2373/wbcatt", 500, 128, 3, 5, 31),
        _manifest("ham", "HAM10000", "https://doi.org/10.7910/DVN/DBW86T", 800, 112, 3, 7),
    )
    columns = (
        Column(LINEAR, "TrunkCNN", note="gives no reasons"),
        Column("CBM", "CBM", settings=_BACKBONE),
        Column("CEM", "CEM", settings=_BACKBONE),
        Column("ParseCaps", "ParseCaps", preset="trunk", unnamed=_UNNAMED),
        Column("ParseCaps, bottleneck", "ParseCaps", preset="trunk", settings={"head": "bottleneck"}, unnamed=_UNNAMED),
    )
    protocol = Protocol(
        "price",
        {
            "quick": Scale(1, 64, train=100, test=100),
            "hour": Scale(None, 128, train=500, test=1000),
            "full": Scale(40, 128),
        },
        concepts=True,
    )
    one_set = False
    measures = (
        Measure("macro_auroc", "AUROC", 3, ""),
        Measure("balanced_accuracy", "balanced accuracy", intervals=False),
        Measure("mean_auroc", "concept AUROC, mean", 3, "", intervals=False),
        Measure("pointing", "pointing game", 0, intervals=False),
        Measure("corrected", "accuracy gained by correcting all concepts", 1, "points", intervals=False),
    )
    reference = LINEAR
    shown = 1
    terms = (
        "By patient, the same cases for all models; 95 % intervals and tests are over patients.",
        "Equal for all: EfficientNet-Lite0 up to a stride of 16 with ImageNet weights, the images, and the recipe that "
        "`parsecaps train` chooses for few images. Each model has its published loss.",
    )
    more_notes = (
        "CBM and CEM need data that name concepts. Elsewhere ParseCaps has 8 without a name, and its bottleneck "
        "decides by these.",
        "Pointing game: how often the highest point of the diagnosis' map lies in the outlined lesion, in at most "
        f"{_MAPPED} test cases. The map follows the routes; where a network has none it is Grad-CAM.",
    )

    def choose(self, request: Request) -> list[Column]:
        seeds = range(request.seed, request.seed + SEEDS[request.budget])
        return [
            replace(column, name=f"{column.name}{_SEED}{seed}", training={**column.training, "seed": seed})
            for column in super().choose(request)
            for seed in seeds
        ]

    def fits(self, column: Column, concepts: Sized) -> bool:
        return len(concepts) > 0 or not find_model(column.kind).needs_concepts

    def check(self, path: str, data: DataSet) -> None:
        """Any data will do."""

    def scale(self, request: Request, data: DataSet) -> Scale:
        scale = super().scale(request, data)
        most = [each for each in (scale.train, _TRAINED.get(data_name(data))) if each]
        return replace(scale, train=min(most, default=None))

    def change(self, config: Config, cases: TableCases) -> Config:
        chosen: dict[str, Any] = dict.fromkeys(("mixup", "ema", "keep", "class_balance", "patience"), "auto")
        return config.change("training", **chosen, losses=dict.fromkeys(("consistency", "diversity"), "auto"))

    def measure(self, request: Request, cases: TableCases, run: Run) -> Measured:
        kept, tested = keep_scores(run, cases.tested), CaseSet(run.data, run.prepared, cases.tested)
        return {**kept, "pointing": _pointing(run.model, tested), "corrected": _gain_by_correcting(run, tested)}

    def sections(self, work: Work) -> list[TableSection]:
        drawn: dict[tuple[str, str], Drawn] = {}
        sections = [self._section(work, number, drawn) for number in range(len(work.sets))]
        named = [cases for cases in work.sets if cases.data.concepts]
        means = [_means(work, drawn, "Mean of all data sets", work.sets)] if len(work.sets) > 1 else []
        means += [_means(work, drawn, "Mean of the data sets with concepts", named)] if len(named) > 1 else []
        return [*means, *sections]

    def _section(self, work: Work, number: int, drawn: dict[tuple[str, str], Drawn]) -> TableSection:
        """Return the rows of a data set, and add their AUROCs to `drawn`."""
        cases, rows = work.sets[number], []
        for name, columns in _by_name(work).items():
            cells = [work.grid.get((cases.name, column.name)) for column in columns]
            kept = [work.kept(cell) for cell in cells]
            first = work.row(columns[0], cells[0], {})
            if None in kept:
                status = "needs concepts" if cells[0] is None else first.status or "other seeds are missing"
                rows.append(replace(first, name=name, status=status))
                continue
            auroc = Drawn.mean([Drawn.of(work.predictions(cell), number) for cell in cells if cell is not None])
            drawn[cases.name, name] = auroc
            figures = {each.key: _mean_figure(each, [one for one in kept if one is not None]) for each in self.measures}
            linear = drawn.get((cases.name, LINEAR))
            against = None if linear is None or name == LINEAR else auroc.minus(linear)
            rows.append(replace(first, name=name, figures={**figures, _AUROC.name: auroc.figure()}, against=against))
        return TableSection(cases.name, self.measures, rows, self.about(cases), self.reference)


def _by_name(work: Work) -> dict[str, list[Column]]:
    """The columns of all seeds by the name without the seed."""
    found: dict[str, list[Column]] = {}
    for column in work.columns:
        found.setdefault(column.name.rpartition(_SEED)[0], []).append(column)
    return found


def _means(work: Work, drawn: dict[tuple[str, str], Drawn], title: str, sets: Sequence[TableCases]) -> TableSection:
    """The mean AUROC of each column over data sets, where it is finished on all of them."""
    means = {
        name: Drawn.mean([drawn[cases.name, name] for cases in sets])
        for name in _by_name(work)
        if all((cases.name, name) in drawn for cases in sets)
    }
    linear = means.get(LINEAR)
    rows = [
        TableRow(
            name,
            {_AUROC.name: each.figure()},
            against=None if linear is None or name == LINEAR else each.minus(linear),
        )
        for name, each in means.items()
    ]
    return TableSection(title, Price.measures[:1], rows, ", ".join(cases.name for cases in sets), LINEAR)


def _mean_figure(measure: Measure, kept: Sequence[Measured]) -> Figure:
    """The mean over seeds of a score, or of what was measured beside the scores."""
    values = []
    for each in kept:
        score = Scores.from_dict(each["scores"]).single.get(measure.key)
        value = each.get(measure.key, None if score is None else score.value)
        values += [] if value is None else [value]
    return Figure((100 if measure.unit == "%" else 1) * float(np.mean(values)) if values else None)


def _pointing(model: Model, cases: CaseSet) -> float | None:
    """The pointing game of the diagnosis' maps on some of the cases; None where the data have no masks."""
    masks = find_masks(cases.data, model)
    if masks.lesion is None:
        return None
    order = np.random.default_rng(0).permutation(len(cases))[:_MAPPED]
    some, measured = AuditCases(model, cases.subset(order)), []
    maker = next(iter(map_makers(model.network).values()))
    for batch, image in some.batches():
        columns = some.values(image)[:, len(model.concepts) :].argmax(1).tolist()
        targets = [[Target("classes", column)] for column in columns]
        maps = dense_maps(some, maker, image, targets).amax(1, keepdim=True)  # all others are 0
        measured.append(measure_maps(maps.double().cpu().numpy(), masks.lesion(some.rows_of(batch))[:, None]))
    return localise(joined(measured), some.average(), ["diagnosis"]).pointing.value


def _gain_by_correcting(run: Run, cases: CaseSet) -> float | None:
    """Points of accuracy that correcting all known concepts brings; None where they do not decide, or none is known."""
    if run.model.network.reasoning() is None or not cases.data.concepts:
        return None
    train = predict_cases(run.model, run.cases("train"))
    audited, _ = audit_concepts(run.model, cases, predict_cases(run.model, cases), train, resamples=0)
    if audited is None or not audited.interventions:
        return None
    before, *_, after = audited.interventions[0].accuracy
    return 100 * (after - before)
