"""Whether the routes carry the decision: the three measurements of `parsecaps bench routes`."""

from parsecaps.experiments.short_training import Split, accuracy
from parsecaps.models.pretrained import PretrainedModel
from parsecaps.nn.couplings import replace_couplings, strongest, uniform

KEPT = (1, 2, 4)


def route_scores(model: PretrainedModel, split: Split) -> dict[str, float]:
    """Accuracy with every coupling made uniform, and with all but each parent's strongest children cut, in percent."""
    scores = {}
    with replace_couplings(model, uniform):
        scores["uniform"] = accuracy(model, split)
    for count in KEPT:
        with replace_couplings(model, strongest(count)):
            scores[f"strongest_{count}"] = accuracy(model, split)
    return scores
