"""The page of `parsecaps evaluate`: one model or several, with intervals, plots and comparisons, in one file."""

from collections.abc import Mapping

from parsecaps.metrics.attributes import PER_ATTRIBUTE
from parsecaps.metrics.comparison import Comparison
from parsecaps.metrics.conformal_scores import KEYS
from parsecaps.metrics.ensemble import Together
from parsecaps.metrics.scores import PER_CLASS, PER_CONCEPT, Scores
from parsecaps.report import score_text
from parsecaps.report.pages import render

BARS = (  # from 0 to 1
    *("accuracy", "balanced_accuracy", *(f"macro_{key}" for key in PER_CLASS), "steadiness"),
    *("patient_accuracy", "pooled_accuracy"),
    *("mean_auroc", "mean_f1"),
    *(f"mean_{key}" for key in PER_ATTRIBUTE),
)
COLOURS = ("#2f6fb2", "#d1622b", "#1d7a46", "#8b4fb0", "#b8860b", "#c2326a", "#2a9a9a", "#6b7280", "#7a4b2a", "#4b5bd6")


def scores_page(
    models: Mapping[str, Scores],
    comparisons: Mapping[tuple[str, str], Comparison] | None = None,
    together: Together | None = None,
    *,
    title: str = "Scores",
) -> str:
    """The whole page as HTML. `models` by name; `comparisons` by the names of the first and the second model.

    `together` is what all models have in common.
    """
    if not models:
        raise ValueError("there are no scores to show; give those of at least one model")
    return render(
        "scores.html",
        title=title,
        models=models,
        comparisons=comparisons or {},
        together=together,
        keys=[key for key in score_text.TITLES if any(key in scores.single for scores in models.values())],
        tiles=score_text.MAIN,
        bars=BARS,
        per_class=PER_CLASS,
        per_concept=PER_CONCEPT,
        per_attribute=PER_ATTRIBUTE,
        of_sets=KEYS,
        colours=COLOURS,
        text=score_text,
    )
