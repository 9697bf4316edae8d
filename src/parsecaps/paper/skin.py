"""Lesions with concepts (Tab. 3) and what each loss is worth (Tab. 5); any data set with concepts may stand in."""

from dataclasses import replace

from parsecaps.paper.cells import AS_PRINTED, Column, Scale
from parsecaps.paper.needs import DERM7PT, PH2, PH2D7, TableCases
from parsecaps.paper.protocol import BOTH, Protocol
from parsecaps.paper.table import EQUAL, TWO_OPTIMIZERS, PaperTable, Work
from parsecaps.report.reproduced import Measure

_BACKBONE = {"backbone": "ResNet18"}  # the same for all that put concepts on features
COLUMNS = (
    Column("ParseCaps", "ParseCaps"),
    AS_PRINTED,
    Column("ParseCaps, bottleneck", "ParseCaps", settings={"head": "bottleneck"}, note="decides by its concepts alone"),
    Column("FlatCaps", "FlatCaps", note="ParseCaps without the tree"),
    Column("CoherentCNN", "CoherentCNN", settings=_BACKBONE),
    Column("CCNN", "CCNN", settings=_BACKBONE),
    Column("CBM", "CBM", settings=_BACKBONE, note="joint"),
    Column(
        "CBM, presences", "CBM", settings={**_BACKBONE, "passes": "presence"}, note="joint, by presences, not logits"
    ),
    Column("CBM, sequential", "CBM", settings={**_BACKBONE, "mode": "sequential"}),
    Column("CBM, independent", "CBM", settings={**_BACKBONE, "mode": "independent"}),
    Column("CEM", "CEM", settings=_BACKBONE),
    Column("ProtoCaps", "ProtoCaps"),
    Column("PlainCNN", "PlainCNN"),
    Column("ResNet18", "ResNet18", note="from scratch, without ImageNet weights"),
    Column("SqueezeNet", "SqueezeNet", note="classes alone; from scratch, without ImageNet weights"),
    Column("Skin VGGNet", "VGG16", note="from scratch, without ImageNet weights"),
)
PROTOCOL = Protocol(
    "skin",
    {"quick": Scale(2, 72, train=200, test=150), "hour": Scale(None, 112), "full": Scale(300, 112)},
    concepts=True,
    optimizers=BOTH,
)
MEASURES = (
    Measure("accuracy", "accuracy"),
    Measure("mean_auroc", "concept AUROC, mean"),
    Measure("explanation_error_l2", "explanation error (L2)", 3, "", lower_is_better=True),
)


class Skin(PaperTable):
    """Table 3: PH2, Derm7pt and both together."""

    name = "skin"
    title = "Lesions with concepts: diagnosis and concepts of each model"
    paper = "ParseCaps paper, Tab. 3"
    needs = (PH2, DERM7PT, PH2D7)
    columns = COLUMNS
    protocol = PROTOCOL
    one_set = False
    measures = MEASURES
    terms = (*EQUAL, TWO_OPTIMIZERS)
    always_printed = True

    def printed(self, work: Work, cases: TableCases, column: Column, key: str) -> float | None:
        return work.printed.figure(column.published or column.name, cases.data.source) if key == "accuracy" else None

    def notes(self, work: Work) -> list[str]:
        return super().notes(work) + [
            f"{cases.name} stands in for the paper's data, so there are no published figures of it."
            for cases in work.sets
            if not self.knows(cases.data)
        ]


_OFF = {"losses": {"presentation": 0.0, "triplet": 0.0}}
ALL = "L_c + L_p + L_t"
LOSSES = (
    Column("L_c", "ParseCaps", training=_OFF, note="classification alone"),
    Column("L_c + L_p", "ParseCaps", training={"losses": {"triplet": 0.0}}, note="with presentation"),
    Column("L_c + L_t", "ParseCaps", training={"losses": {"presentation": 0.0}}, note="with triplet"),
    Column(ALL, "ParseCaps", note="all three"),
    replace(AS_PRINTED, name=f"{ALL}, as printed", published=ALL),
)


class Losses(PaperTable):
    """Table 5: ParseCaps with losses switched off."""

    name = "losses"
    title = "What each loss is worth"
    paper = "ParseCaps paper, Tab. 5"
    needs = (PH2,)
    columns = LOSSES
    protocol = Protocol(
        "losses",
        {"quick": Scale(2, 64, train=200, test=150), "hour": Scale(None, 112), "full": Scale(300, 112)},
        concepts=True,
    )
    one_set = False
    measures = (
        MEASURES[0],
        Measure("explanation_error_l2_squared", "explanation error (L2, squared)", 3, "", lower_is_better=True),
        *MEASURES[:0:-1],
    )
    reference = ALL

    def printed(self, work: Work, cases: TableCases, column: Column, key: str) -> float | None:
        return super().printed(work, cases, column, key) if self.knows(cases.data) else None
