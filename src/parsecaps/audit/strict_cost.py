"""What a strict tree costs, measured beside the ordinary network."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from parsecaps.audit.cases import Progress
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.explain.known_cases import weights_digest
from parsecaps.explain.strict_cost import Paired, StrictCost
from parsecaps.explain.strict_tree import strict_network
from parsecaps.metrics.bootstrap import resampled_weights
from parsecaps.metrics.comparison import Difference, compare, paired_difference
from parsecaps.metrics.scores import score
from parsecaps.metrics.weighted import WeightedConceptScores, macro
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import predict_cases
from parsecaps.prediction.predictions import Predictions


def strict_cost(
    bundle: Bundle,
    data: DataSet,
    prepared: PreparedImages,
    rows: Sequence[int],
    ordinary: Predictions,
    *,
    statistics: Mapping[str, Tensor] | None = None,
    resamples: int = 1000,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
) -> StrictCost:
    """Run the strict network on these cases, of which the `ordinary` one's predictions are known, and score both."""
    progress(0, len(rows))
    with strict_network(bundle.model, statistics):
        strict = predict_cases(bundle, data, prepared, rows, progress=progress)
    scores = [score(each, resamples=resamples, seed=seed) for each in (ordinary, strict)]
    accuracy = auroc = None
    if (ordinary.label >= 0).any():
        difference = compare(ordinary, strict, resamples=resamples, seed=seed).differences["accuracy"]
        accuracy = Paired(scores[0]["accuracy"], scores[1]["accuracy"], difference)
    if ordinary.presence is not None and ordinary.concepts is not None and "mean_auroc" in scores[0].concepts:
        first, second = (each.concepts["mean_auroc"] for each in scores)
        auroc = Paired(first, second, _auroc(ordinary, strict, resamples, seed))
    return StrictCost(accuracy, auroc, statistics is not None, weights_digest(bundle.model))


def _auroc(ordinary: Predictions, strict: Predictions, resamples: int, seed: int) -> Difference:
    """The difference of the means over concepts, over resamples of patients."""
    weigh = []
    for each in (ordinary, strict):
        assert each.presence is not None
        assert each.concepts is not None
        weigh.append(WeightedConceptScores(each.presence, each.concepts))
    first, second = (float(macro(each(np.ones((len(ordinary), 1))))["auroc"][0]) for each in weigh)
    drawn = [
        macro(weigh[1](weights))["auroc"] - macro(weigh[0](weights))["auroc"]
        for weights in resampled_weights(ordinary.groups(), resamples, seed)
    ]
    return paired_difference(first, second, np.concatenate(drawn) if drawn else np.empty(0))
