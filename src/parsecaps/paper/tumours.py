"""Brain tumours on CE-MRI by patient: which model is right how often, and how alike the capsules of its layers are."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from parsecaps.audit.redundancy import NUM_BINS, capsule_similarity
from parsecaps.data.case_set import CaseSet
from parsecaps.metrics import means
from parsecaps.metrics.bootstrap import SIGNED_SHARE
from parsecaps.metrics.predictions import group_numbers
from parsecaps.paper.cells import AS_PRINTED, Column, Measured, Request, Scale
from parsecaps.paper.needs import CEMRI, TableCases
from parsecaps.paper.protocol import BOTH, Protocol, keep_training
from parsecaps.paper.table import EQUAL, TWO_OPTIMIZERS, PaperTable, Work, figure_of
from parsecaps.report.reproduced import Figure, Measure, Reproduced
from parsecaps.report.reproduced_pictures import draw_curves_of
from parsecaps.run import Run

_CNNS = ("ResNet18", "DenseNet121", "EfficientNetB0", "GoogLeNet", "VGG19", "SqueezeNet")
COLUMNS = (
    Column("ParseCaps", "ParseCaps"),
    AS_PRINTED,
    Column("FlatCaps", "FlatCaps", note="ParseCaps without the tree"),
    Column("CapsNet", "CapsNet", settings={"features": 256}),
    Column(
        "CapsNet (Afshar)",
        "CapsNet",
        settings={"features": 64},
        training={"losses": {"class_reconstruction": 1.0}},
        recipe="capsnet-brain",
        note="64 first maps",
    ),
    Column("DeepCaps", "DeepCaps"),
    Column("OrthCaps", "OrthCaps", note="after the paper's description"),
    *(Column(name, name) for name in ("EfficientCapsNet", "ARCapsNet", "PlainCNN")),
    *(Column(name, name, note="from scratch, without ImageNet weights") for name in _CNNS),
    *(Column(name, note="its layers are not published") for name in ("BrainCaps", "BayesCap", "Dilated CapsNet")),
)
PROTOCOL = Protocol(
    "classification",
    {"quick": Scale(2, 72, train=240, test=200), "hour": Scale(None, 112), "full": Scale(300, 112)},
    optimizers=BOTH,
)
OVERALL = (
    Measure("accuracy", "accuracy"),
    Measure("macro_f1", "F1, macro"),
    Measure("macro_precision", "precision, macro"),
    Measure("macro_recall", "recall, macro"),
    Measure("macro_specificity", "specificity, macro"),
)
BY_CLASS = (
    Measure("precision", "precision"),
    Measure("recall", "recall"),
    Measure("specificity", "specificity"),
    Measure("f1", "F1"),
)


class TumourTable(PaperTable):
    """Tables 1, 2 and A."""

    name = "classification"
    title = "Brain tumours: which model is right how often"
    paper = "ParseCaps paper, Tab. 1, Tab. 2 and the supplement's table of further CapsNets"
    needs = (CEMRI,)
    columns = COLUMNS
    protocol = PROTOCOL
    measures = OVERALL
    by_class = BY_CLASS
    heading = "All classes"
    terms = (*EQUAL, TWO_OPTIMIZERS)


_IMAGES = 64
_HEADS = ("classes", "concepts")
_LAYERS = {"primary": "primary capsules", "top": "top capsules below the classes"}
_FAIR = 784  # primary capsules of ParseCaps at 112 px, and here of the others that can have as many


class Redundancy(PaperTable):
    """The supplement's figure: curves of similarities and their means, of networks with as many primary capsules."""

    name = "redundancy"
    title = "Redundancy: how alike the capsules of a layer are"
    paper = "ParseCaps paper, supplement, figure on redundancy"
    needs = (CEMRI,)
    columns = (
        *COLUMNS[:3],
        Column("CapsNet", "CapsNet", settings={"types": 1}, largest=72, note="one type of capsules"),
        Column("OrthCaps", "OrthCaps", settings={"types": 4}, note="after the paper's description, 4 types"),
        *(each for each in COLUMNS if each.kind in ("DeepCaps", "EfficientCapsNet", "ARCapsNet")),
    )
    usual_columns = ("ParseCaps", "ParseCaps, as printed", "CapsNet", "OrthCaps")  # those of the paper's figure
    protocol = Protocol(
        "redundancy", {**PROTOCOL.scales, "quick": Scale(2, 112, train=240, test=200)}, optimizers=("usual",)
    )
    measures = (
        Measure("top", "similarity in the top layer below the classes", 3, "", lower_is_better=True),
        Measure("primary", "similarity in the primary layer", 3, "", lower_is_better=True),
    )
    reference = ""
    heading = "Mean similarity"
    terms = (*EQUAL, "All learn by AdamW at 0.001 or, in the full budget, by their published recipe.")
    usual_notes = 1
    more_notes = (
        f"Cosine of every two capsules of a layer in an image, over {_IMAGES} test images at most; intervals are over "
        "patients. The lower, the less redundant. A curve is of capsules: each counts where its mean cosine with the "
        "others of its layer is; the JSON files of the cells have the same of pairs.",
        f"For images of 112 px ParseCaps has {_FAIR} primary capsules, and CapsNet and OrthCaps are given as many, as "
        "the paper calls fair. The other networks cannot have that number, and come if they are asked for. The top "
        "layers differ in number and dimension: cosines of more dimensions are smaller by chance.",
    )
    remarks = ("The paper prints the curves as a picture, without numbers; it says that ParseCaps is furthest left.",)

    def figures(self, work: Work, cases: TableCases, column: Column, kept: Measured | None) -> dict[str, Figure]:
        return {each.key: figure_of(each, None if kept is None else kept[each.key]["mean"]) for each in self.measures}

    def note(self, column: Column, kept: Measured | None) -> str:
        if kept is None:
            return super().note(column, kept)
        both = (f"{name} {kept[name]['capsules']:,} x {kept[name]['dim']}" for name in ("primary", "top"))
        return f"{', '.join(both)} ({kept['top']['layer']})"

    def draw(self, work: Work, result: Reproduced, path: Path) -> None:
        edges = np.linspace(-1, 1, NUM_BINS + 1)
        middle = (edges[1:] + edges[:-1]) / 2
        panels = {
            title: {
                name: (middle, 100 * np.asarray(kept[key]["by_capsule"])) for name, (_, kept) in work.finished().items()
            }
            for key, title in _LAYERS.items()
        }
        draw_curves_of(path, panels, below="mean similarity to the others", beside="share of capsules, %")

    def measure(self, request: Request, cases: TableCases, run: Run) -> Measured:
        """The histograms of the primary layer and of the last one below the heads, and their means over patients."""
        tested = CaseSet(run.data, run.prepared, cases.tested)
        tested = tested.subset(np.unique(np.linspace(0, len(tested) - 1, _IMAGES).astype(int)))
        found = [  # one by one, so that means can be over patients
            [each for each in capsule_similarity(run.model.network, [batch.image]) if not each.layer.startswith(_HEADS)]
            for batch in tested.batches(1)
        ]
        group = group_numbers(tested.patients)

        def overall(place: int) -> Mapping[str, object]:
            layers = [each[place] for each in found]
            cosines = np.array([[each.mean] for each in layers], dtype=np.float64)  # NaN where there is none
            [mean] = means(cosines, group, bounds=SIGNED_SHARE).scores()
            share, by_capsule = (
                np.mean([getattr(each, name) for each in layers], axis=0).tolist() for name in ("share", "by_capsule")
            )
            own = {name: getattr(layers[0], name) for name in ("layer", "capsules", "dim")}
            return {**own, "mean": vars(mean), "share": share, "by_capsule": by_capsule}

        return {"primary": overall(0), "top": overall(-1), **keep_training(run)}
