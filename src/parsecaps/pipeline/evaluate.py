"""The scores of a run, for Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parsecaps.config import EvaluateConfig, load_settings
from parsecaps.evaluation.runs import evaluate_run
from parsecaps.evaluation.scores import Scores
from parsecaps.pipeline.cross_validate import CrossValidation
from parsecaps.training.fit import Run


def evaluate(
    run: Run | CrossValidation | str | Path,
    *,
    part: str = "auto",
    data: str | None = None,
    resamples: int = 1000,
    risks: Sequence[float] = (0.05, 0.1, 0.2),
    device: str = "auto",
) -> Scores:
    """Score a run or its folder: on its test part (validation without one), another `part`, or all cases of `data`.

    Every score has its 95 % interval over patients and its n: `evaluate(run)["accuracy"]`. A cross-validation is scored
    on all its folds together. The files in the folder stay as they are. `device` is auto (a GPU where there is one),
    cpu or cuda.
    """
    values: dict[str, Any] = {"part": part, "data": data, "resamples": resamples, "risks": tuple(risks)}
    values["device"] = device
    return evaluate_run(folder_of(run), load_settings(EvaluateConfig, values=values)).scores


def folder_of(run: Run | CrossValidation | str | Path) -> Path:
    """Where a run is."""
    return Path(run) if isinstance(run, str | Path) else run.folder.path
