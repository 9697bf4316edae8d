"""Tables 1 and 2, and the supplement's: brain tumours on CE-MRI by patient, all models, macro means and by class."""

from parsecaps.metrics import Scores
from parsecaps.paper.needs import CEMRI
from parsecaps.paper.optimizers import BOTH
from parsecaps.paper.plan import Column, Load, Log, Request, Scale, Table, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.published import Published, published
from parsecaps.paper.trained import Protocol, TrainedModels, one_set
from parsecaps.report.reproduced import Figure, Measure

_SCRATCH = "from scratch, without ImageNet weights"
_UNKNOWN = "its layers are not published"
COLUMNS = (
    Column("ParseCaps", "ParseCaps"),
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
    Column("EfficientCapsNet", "EfficientCapsNet"),
    Column("ARCapsNet", "ARCapsNet"),
    Column("PlainCNN", "PlainCNN"),
    Column("ResNet18", "ResNet18", note=_SCRATCH),
    Column("DenseNet121", "DenseNet121", note=_SCRATCH),
    Column("EfficientNetB0", "EfficientNetB0", note=_SCRATCH),
    Column("GoogLeNet", "GoogLeNet", note=_SCRATCH),
    Column("VGG19", "VGG19", note=_SCRATCH),
    Column("SqueezeNet", "SqueezeNet", note=_SCRATCH),
    Column("BrainCaps", note=_UNKNOWN),
    Column("BayesCap", note=_UNKNOWN),
    Column("Dilated CapsNet", note=_UNKNOWN),
)
PROTOCOL = Protocol(
    "classification",
    {
        "quick": Scale(2, 72, train=240, test=200),
        "hour": Scale(None, 72),
        "full": Scale(300, 112),
    },
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


class Classification(Table):
    """Tables 1, 2 and A."""

    name = "classification"
    title = "Brain tumours: which model is right how often"
    paper = "ParseCaps paper, Tab. 1, Tab. 2 and the supplement's table of further CapsNets"
    needs = (CEMRI,)

    def prepare(self, request: Request, log: Log) -> TrainedModels:
        columns = choose_columns(COLUMNS, request.models, self.name)
        cases = one_set(PROTOCOL, request, self.needs, self.name)
        printed = published(self.name) if cases.data.source == "cemri" else Published()

        def figures(cases: Cases, column: Column, scores: Scores | None) -> dict[str, Figure]:
            return {
                each.key: Figure.of(None if scores is None else scores[each.key], printed.figure(column.name, each.key))
                for each in OVERALL
            }

        grid = PROTOCOL.cells(request, columns, [cases], log)
        return TrainedModels(self, request, columns, [cases], grid, printed, OVERALL, figures, BY_CLASS)

    def loads(self, request: Request) -> list[Load]:
        return PROTOCOL.loads(request, choose_columns(COLUMNS, request.models, self.name), self.needs)
