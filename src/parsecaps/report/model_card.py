"""The card of a trained model: what it is, what it has seen, how good it is, what it is for; in Markdown."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from parsecaps.config import Config
from parsecaps.metrics import Scores, find_metric
from parsecaps.prediction.bundle import Bundle, is_unnamed
from parsecaps.report.pages import render

_PARTS = {"train": "training", "val": "validation", "test": "test"}


def model_card(
    bundle: Bundle, config: Config, about: Mapping[str, Any], data: Mapping[str, Any], scores: Scores | None
) -> str:
    """The card of a run's model, from what the run wrote down: `run.json` as `about`, `data.json` as `data`.

    Every number in it was counted or measured. `scores` are None where nobody was left to score the model on.
    """
    return render(
        "model_card.md",
        bundle=bundle,
        named=[name for name in bundle.concepts if not is_unnamed(name)],
        parameters=sum(weights.numel() for weights in bundle.model.parameters()),
        config=config,
        about=about,
        data=data,
        name=config.data.path if data["source"] == "phantom" else PurePath(config.data.path).name,
        parts={part: title for part, title in _PARTS.items() if data["patients_by_part"][part]},
        scores=scores,
        find_metric=find_metric,
    )
