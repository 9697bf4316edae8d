"""What a strict tree costs, measured beside the ordinary network."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from parsecaps.audit.cases import Progress
from parsecaps.data.cache import PreparedImages
from parsecaps.data.cases import DataSet
from parsecaps.explain.case_memory import weights_digest
from parsecaps.explain.strict_cost import Paired, StrictCost
from parsecaps.explain.strict_tree import strict_network
from parsecaps.metrics import compare, paired_differences, score
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
        found = paired_differences(ordinary, strict, ["mean_auroc"], resamples=resamples, seed=seed)
        auroc = Paired(first, second, found["mean_auroc"])
    return StrictCost(accuracy, auroc, statistics is not None, weights_digest(bundle.model))
