"""How good a model is: arrays in, numbers out, each with its interval over patients.

The names are imported when they are first used: a prediction needs no scores.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsecaps.metrics.bootstrap import Means, Score, means
    from parsecaps.metrics.comparison import Comparison, Difference, Ensemble, compare, ensemble, paired_differences
    from parsecaps.metrics.concepts import THRESHOLD
    from parsecaps.metrics.conformal import Sets
    from parsecaps.metrics.metric import Metric, Weighted
    from parsecaps.metrics.registry import METRICS, find_metric
    from parsecaps.metrics.scores import FoldScores, Scores, score, score_sets

__all__ = [
    "METRICS",
    "THRESHOLD",
    "Comparison",
    "Difference",
    "Ensemble",
    "FoldScores",
    "Means",
    "Metric",
    "Score",
    "Scores",
    "Sets",
    "Weighted",
    "compare",
    "ensemble",
    "find_metric",
    "means",
    "paired_differences",
    "score",
    "score_sets",
]

_NAMES = {
    "bootstrap": "Means Score means",
    "conformal": "Sets",
    "comparison": "Comparison Difference Ensemble compare ensemble paired_differences",
    "concepts": "THRESHOLD",
    "metric": "Metric Weighted",
    "scores": "FoldScores Scores score score_sets",
    "registry": "METRICS find_metric",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
