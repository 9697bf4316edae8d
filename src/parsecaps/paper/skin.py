"""Table 3: skin lesions with concepts, on PH2, Derm7pt and both together; any data set with concepts may stand in."""

from collections import Counter
from collections.abc import Sequence

from parsecaps.metrics import Scores
from parsecaps.paper.needs import DERM7PT, PH2, PH2D7, Need, choose_data
from parsecaps.paper.optimizers import BOTH
from parsecaps.paper.plan import Column, Load, Log, Request, Scale, Table, choose_columns
from parsecaps.paper.protocol import Cases, share_cases
from parsecaps.paper.published import published
from parsecaps.paper.trained import Protocol, TrainedModels
from parsecaps.report.reproduced import Figure, Measure

_BACKBONE = {"backbone": "ResNet18"}  # the same for all that put concepts on features
COLUMNS = (
    Column("ParseCaps", "ParseCaps"),
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
    Column("Skin VGGNet", note="which network it was is not clear"),
)
PROTOCOL = Protocol(
    "skin",
    {"quick": Scale(2, 72, train=200, test=150), "hour": Scale(None, 72), "full": Scale(300, 112)},
    concepts=True,
    optimizers=BOTH,
)
MEASURES = (
    Measure("accuracy", "accuracy"),
    Measure("mean_auroc", "concept AUROC, mean"),
    Measure("explanation_error_l2", "explanation error (L2)", 3, "", lower_is_better=True),
)
_SCALES = {"accuracy": 100.0, "mean_auroc": 100.0, "explanation_error_l2": 1.0}


class Skin(Table):
    """Table 3."""

    name = "skin"
    title = "Lesions with concepts: diagnosis and concepts of each model"
    paper = "ParseCaps paper, Tab. 3"
    needs = (PH2, DERM7PT, PH2D7)

    def prepare(self, request: Request, log: Log) -> TrainedModels:
        columns = choose_columns(COLUMNS, request.models, self.name)
        sets = concept_sets(PROTOCOL, request, self.needs)
        printed = published(self.name)
        known = any(cases.data.source in {need.name for need in self.needs} for cases in sets)

        def figures(cases: Cases, column: Column, scores: Scores | None) -> dict[str, Figure]:
            theirs = {"accuracy": printed.figure(column.name, cases.data.source)}
            return concept_figures(scores, theirs)

        if not known:
            columns = [column for column in columns if column.kind]
        grid = PROTOCOL.cells(request, columns, sets, log)
        notes = [
            f"{cases.name} stands in for the paper's data, so there are no published figures of it."
            for cases in sets
            if cases.data.source not in {need.name for need in self.needs}
        ]
        return TrainedModels(self, request, columns, sets, grid, printed, MEASURES, figures, notes=notes)

    def loads(self, request: Request) -> list[Load]:
        return PROTOCOL.loads(request, choose_columns(COLUMNS, request.models, self.name), self.needs)


def concept_sets(protocol: Protocol, request: Request, needs: Sequence[Need]) -> list[Cases]:
    """The data sets that were given or are here, each with its split; refused where one names no concepts."""
    found = choose_data(request.data, needs, one_of=True)
    for path, data in found:
        if not data.concepts:
            titles = ", ".join(need.title for need in needs)
            raise ValueError(
                f"{path} names no concepts, and the models are compared by them; give {titles}, or such data"
            )
    sets = [share_cases(protocol.folder(request), path, data, protocol.scale(request)) for path, data in found]
    name, times = Counter(cases.name for cases in sets).most_common(1)[0]
    if times > 1:
        raise ValueError(f"two of the data sets are called {name}; rename a folder, or give them one after the other")
    return sets


def concept_figures(scores: Scores | None, printed: dict[str, float | None]) -> dict[str, Figure]:
    """Diagnosis and concepts; a model that names no concepts has the first alone."""
    single = {} if scores is None else scores.single
    return {key: Figure.of(single.get(key), printed.get(key), scale=scale) for key, scale in _SCALES.items()}
