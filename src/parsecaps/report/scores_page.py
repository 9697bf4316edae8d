"""The page of `parsecaps evaluate`: one model or several, with intervals, plots and comparisons, in one file."""

from collections.abc import Mapping

from parsecaps.metrics import METRICS, Comparison, Ensemble, Scores, find_metric
from parsecaps.report import score_text
from parsecaps.report.pages import render

COLOURS = ("#2f6fb2", "#d1622b", "#1d7a46", "#8b4fb0", "#b8860b", "#c2326a", "#2a9a9a", "#6b7280", "#7a4b2a", "#4b5bd6")


def scores_page(
    models: Mapping[str, Scores],
    comparisons: Mapping[tuple[str, str], Comparison] | None = None,
    ensemble: Ensemble | None = None,
    *,
    title: str = "Scores",
) -> str:
    """The whole page as HTML. `models` by name; `comparisons` by the names of the first and the second model.

    `ensemble` is the mean of all models.
    """
    if not models:
        raise ValueError("there are no scores to show; give those of at least one model")
    of_any = {metric for scores in models.values() for metric in scores.single_metrics}
    return render(
        "scores.html",
        title=title,
        models=models,
        comparisons=comparisons or {},
        ensemble=ensemble,
        metrics=[metric for metric in METRICS if metric in of_any],
        find_metric=find_metric,
        colours=COLOURS,
        text=score_text,
    )
