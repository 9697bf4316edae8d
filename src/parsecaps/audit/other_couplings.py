"""What the couplings of a network are worth: its scores with other couplings, without training anew.

Every coupling is replaced, between capsules and between instantiation parameters. Uniform couplings know nothing, not
even of place. The mean over images keeps what holds for all images, such as place, and drops the choice by content.
Those of another image are as sharp as its own, but were chosen for other content.
"""

from functools import partial

import numpy as np
import torch
from torch import Tensor

from parsecaps.data.case_set import CaseSet
from parsecaps.metrics import Comparison, compare
from parsecaps.metrics.predictions import Predictions, concatenate
from parsecaps.nn.couplings import Coupling, given, uniform
from parsecaps.nn.recorder import replace_couplings
from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.predict import predict_cases
from parsecaps.types import ProgressCallback, silent

UNIFORM, OTHER, MEAN = "uniform", "of another image", "mean over images"
_BATCH = 16  # images whose couplings are kept at a time


def compare_couplings(
    bundle: Bundle,
    cases: CaseSet,
    ordinary: Predictions,
    *,
    resamples: int = 1000,
    seed: int = 0,
    progress: ProgressCallback = silent,
) -> dict[str, Comparison]:
    """Compare the `ordinary` predictions of these cases with those by other couplings.

    Images are put into a random cycle, whatever their order and labels, and each gets the couplings that the network as
    it is has for the next one. The mean is taken over all of these images.
    """
    if len(cases) < 2:
        raise ValueError(f"couplings of another image need 2 images, and there are {len(cases)}; give more")
    predict, model, count = partial(predict_cases, bundle), bundle.model, len(cases)
    own: dict[Coupling, Tensor] = {}
    total: dict[Coupling, Tensor] = {}

    def keep(module: Coupling, c: Tensor) -> Tensor:
        own[module] = c
        total[module] = total.get(module, 0) + c.sum(0, keepdim=True, dtype=torch.float64)
        return c

    progress(0, 4 * count)
    with replace_couplings(model, uniform):
        found = {UNIFORM: predict(cases)}
    order, parts = np.random.default_rng(seed).permutation(count), []
    cycle, following = cases.subset(order), cases.subset(np.roll(order, -1))
    for start in range(0, count, _BATCH):
        progress(count + 2 * start, 4 * count)
        some = range(start, min(start + _BATCH, count))
        with replace_couplings(model, keep):
            predict(following.subset(some))
        with replace_couplings(model, given(own)):
            parts.append(predict(cycle.subset(some)))
    found[OTHER] = concatenate(parts)
    with replace_couplings(model, given({module: each / count for module, each in total.items()})):
        found[MEAN] = predict(cases)
    progress(4 * count, 4 * count)
    return {name: compare(ordinary, each, resamples=resamples, seed=seed) for name, each in found.items()}
