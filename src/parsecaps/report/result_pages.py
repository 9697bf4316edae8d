"""The pages of scores, of a data check and of an audit, each in one file."""

from collections.abc import Mapping

import numpy as np
from PIL import Image

from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.data.check import DataCheck
from parsecaps.data.splits import describe_unused
from parsecaps.metrics import METRICS, Comparison, Ensemble, Scores, find_metric
from parsecaps.metrics.metric import p_equals, p_value
from parsecaps.report.pages import COLOURS, render
from parsecaps.report.pictures import contact_sheet, data_uri, picture_file

PICTURES_PER_CLASS = 16


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
    )


def audit_page(audit: object, *, title: str = "How far the explanations can be trusted") -> str:
    """The whole page of an `Audit` as HTML."""
    return render("audit.html", title=title, audit=audit, colours=COLOURS, find_metric=find_metric)


def data_page(check: DataCheck, data: DataSet, prepared: PreparedImages) -> str:
    """The whole page of a data check as HTML."""
    counts = np.asarray(check.co_occurrence, dtype=float)
    return render(
        "data.html",
        check=check,
        parts=check.parts,
        unused=describe_unused(check.unused),
        most_frequent=max(1.0, float(counts.max(initial=0))),
        sheets=[(name, _sheet(data, prepared, label)) for label, name in enumerate(data.classes)],
    )


def _sheet(data: DataSet, prepared: PreparedImages, label: int) -> str:
    """Pictures of a class from all over the data set, as a PNG within the page; empty where there are none."""
    rows = [i for i in prepared.good if data.cases[i].label == label]
    if not rows:
        return ""
    picked = [rows[i] for i in np.linspace(0, len(rows) - 1, min(PICTURES_PER_CLASS, len(rows))).astype(int)]
    captions = [data.cases[i].patient for i in picked]
    sheet = contact_sheet(np.asarray(prepared.images[picked]), captions, columns=8)
    return data_uri(picture_file(Image.fromarray(np.moveaxis(sheet, 0, -1))))
