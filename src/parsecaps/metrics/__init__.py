"""How good a model is: arrays in, numbers out, each with its interval over patients."""

from parsecaps.metrics.bootstrap import Means, Score, means
from parsecaps.metrics.comparison import Comparison, Difference, Ensemble, compare, ensemble, paired_differences
from parsecaps.metrics.concepts import THRESHOLD
from parsecaps.metrics.conformal import Sets
from parsecaps.metrics.metric import Metric, Weighted
from parsecaps.metrics.scores import FoldScores, Scores, score, score_sets
from parsecaps.metrics.table import METRICS, find_metric

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
