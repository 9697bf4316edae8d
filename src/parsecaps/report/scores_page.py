"""Scores as a page and as a model card, and how what is not a number is worded."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from parsecaps.config import Config
from parsecaps.data.splits import describe_unused
from parsecaps.metrics import METRICS, Comparison, Ensemble, Scores, find_metric
from parsecaps.metrics.metric import UNDEFINED
from parsecaps.metrics.patients import PatientErrors
from parsecaps.model import Model, is_unnamed
from parsecaps.models.summary import count_parameters
from parsecaps.report.pages import render
from parsecaps.report.published_card import data_name

COLOURS = ("#2f6fb2", "#d1622b", "#1d7a46", "#8b4fb0", "#b8860b", "#c2326a", "#2a9a9a", "#6b7280", "#7a4b2a", "#4b5bd6")


def p_value(p: float | None) -> str:
    """Three digits, as small ones say no more.

    >>> p_value(0.04), p_value(0.0002)
    ('0.040', '< 0.001')
    """
    if p is None:
        return UNDEFINED
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def p_equals(p: float | None) -> str:
    """A p-value with the letter p.

    >>> p_equals(0.04), p_equals(0.0002)
    ('p = 0.040', 'p < 0.001')
    """
    text = p_value(p)
    return f"p {text}" if text.startswith("<") else f"p = {text}"


def errors_by_patient(errors: PatientErrors) -> str:
    """How the errors are spread over patients.

    >>> errors_by_patient(PatientErrors(77, 19, 4, []))
    'wrong images: 77; their patients: 19; patients who have half of them: 4'
    """
    of_patients = f"their patients: {errors.patients:,}; patients who have half of them: {errors.half:,}"
    return f"wrong images: {errors.wrong:,}; {of_patients}"


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
        p_value=p_value,
        p_equals=p_equals,
        errors_by_patient=errors_by_patient,
    )


_PARTS = {"train": "training", "val": "validation", "test": "test", "unused": "unused"}


def describe_start(about: Mapping[str, Any]) -> str:
    """What a run was started from, by `run.json`, without the place where it lies; nothing for new weights."""
    start = about.get("start")
    if start is None:
        return ""
    share = f"{start['taken']:,} of {start['parameters']:,} weights"
    images = "an unknown number of" if start["images"] is None else f"{start['images']:,}"
    place = PurePath(start["weights"])
    name = place.parent.name if place.name == "bundle" and place.parent.name else place.name
    return f"{name} ({start['digest']}), learned from {images} images: {share}"


def model_card(
    model: Model, config: Config, about: Mapping[str, Any], data: Mapping[str, Any], scores: Scores | None
) -> str:
    """The card of a run's model, from what the run wrote down: `run.json` as `about`, `data.json` as `data`.

    Every number in it was counted or measured. `scores` are None where nobody was left to score the model on.
    """
    return render(
        "model_card.md",
        model=model,
        named=[name for name in model.concepts if not is_unnamed(name)],
        parameters=count_parameters(model.network),
        config=config,
        about=about,
        origin=describe_start(about),
        data=data,
        name=data_name(config, data),
        parts={part: title for part, title in _PARTS.items() if data["patients_by_part"][part]},
        unused=describe_unused(data.get("unused", {})),  # not in runs before 0.2
        scores=scores,
        find_metric=find_metric,
    )
