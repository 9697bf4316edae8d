"""The card of weights that were learned to be started from: every source, its licence, its size, what was learned."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parsecaps.config import Config
from parsecaps.metrics.scores import Scores
from parsecaps.model import Model
from parsecaps.models.summary import count_parameters
from parsecaps.report.pages import render
from parsecaps.report.scores_page import describe_start

_COLUMNS = ("accuracy", "macro_auroc", "mean_auroc")


@dataclass(frozen=True)
class SourceRow:
    """One data set, how many of its images and patients were learned from, and the scores of its own head, if any."""

    name: str
    licence: str
    classes: Sequence[str]
    concepts: Sequence[str]
    images: int
    patients: int
    scores: Scores | None

    def value(self, metric: str) -> str:
        """A score in short, or a hyphen."""
        found = None if self.scores is None else self.scores.single.get(metric)
        return "-" if found is None or found.value is None else f"{found.value:.3f}"

    @property
    def validated(self) -> int:
        """How many labelled validation images the scores are of."""
        return 0 if self.scores is None else self.scores.labelled


def weights_card(model: Model, config: Config, about: Mapping[str, Any], sources: Sequence[SourceRow]) -> str:
    """The card as Markdown; every number in it was counted or measured."""
    return render(
        "weights_card.md",
        model=model,
        config=config,
        about=about,
        origin=describe_start(about),
        sources=sources,
        columns=_COLUMNS,
        parameters=count_parameters(model.network),
    )
