"""Table 5: ParseCaps with losses switched off, by diagnosis and explanation error, on PH2 or other concept data."""

from parsecaps.metrics import Scores
from parsecaps.paper.needs import PH2
from parsecaps.paper.plan import Column, Load, Log, Request, Scale, Table, choose_columns
from parsecaps.paper.protocol import Cases
from parsecaps.paper.published import Published, published
from parsecaps.paper.skin import MEASURES, concept_figures, concept_sets
from parsecaps.paper.trained import Protocol, TrainedModels
from parsecaps.report.reproduced import Figure

_OFF = {"losses": {"presentation": 0.0, "triplet": 0.0}}
ALL = "L_c + L_p + L_t"
COLUMNS = (
    Column("L_c", "ParseCaps", training=_OFF, note="classification alone"),
    Column("L_c + L_p", "ParseCaps", training={"losses": {"triplet": 0.0}}, note="with presentation"),
    Column("L_c + L_t", "ParseCaps", training={"losses": {"presentation": 0.0}}, note="with triplet"),
    Column(ALL, "ParseCaps", note="all three"),
)
PROTOCOL = Protocol(
    "losses",
    {"quick": Scale(2, 64, train=200, test=150), "hour": Scale(None, 64), "full": Scale(300, 112)},
    concepts=True,
)
ORDER = (MEASURES[0], MEASURES[2], MEASURES[1])


class Losses(Table):
    """Table 5."""

    name = "losses"
    title = "What each loss is worth"
    paper = "ParseCaps paper, Tab. 5"
    needs = (PH2,)

    def prepare(self, request: Request, log: Log) -> TrainedModels:
        columns = choose_columns(COLUMNS, request.models, self.name)
        sets = concept_sets(PROTOCOL, request, self.needs)
        on_ph2 = any(cases.data.source == PH2.name for cases in sets)
        printed = published(self.name) if on_ph2 else Published()

        def figures(cases: Cases, column: Column, scores: Scores | None) -> dict[str, Figure]:
            own = cases.data.source == PH2.name
            keys = ("accuracy", "explanation_error_l2") if own else ()
            return concept_figures(scores, {key: printed.figure(column.name, key) for key in keys})

        grid = PROTOCOL.cells(request, columns, sets, log)
        return TrainedModels(self, request, columns, sets, grid, printed, ORDER, figures, reference=ALL)

    def loads(self, request: Request) -> list[Load]:
        return PROTOCOL.loads(request, choose_columns(COLUMNS, request.models, self.name), self.needs)
