import json
from dataclasses import replace

import numpy as np
import pytest

from parsecaps.metrics.ensemble import put_together
from parsecaps.metrics.scores import score
from parsecaps.prediction.predictions import Predictions
from tests.metrics.make import make_predictions


def others(first: Predictions, number: int) -> list[Predictions]:
    """Models that err each in its own way, their cases in another order."""
    random = np.random.default_rng(5)
    noisy = (replace(first, logits=first.logits + 2 * random.normal(size=first.logits.shape)) for _ in range(number))
    return [each.subset(random.permutation(len(each))) for each in noisy]


def test_the_mean_of_models_and_what_all_get_wrong() -> None:
    first = make_predictions(150, ties=False)
    models = [first, *others(first, 3)]
    found = put_together(models, resamples=50)
    known = np.flatnonzero(first.label >= 0)
    matched = [each.subset([list(each.name).index(name) for name in first.name]).subset(known) for each in models]
    label = first.label[known]
    wrong = np.array([each.logits.argmax(1) != label for each in matched])
    assert found.alone == pytest.approx(np.mean([score(each, resamples=0)["accuracy"].value for each in models]))
    assert (found.models, found.n) == (4, len(known))
    assert (found.all_wrong, found.any_wrong) == (wrong.all(0).sum(), wrong.any(0).sum())
    assert 0 < found.all_wrong < found.any_wrong
    mean = sum(each.probabilities() for each in matched)
    assert found.scores["accuracy"].value == pytest.approx((mean.argmax(1) == label).mean())
    assert found.scores["accuracy"].low is not None
    assert found.misread is not None
    assert found.misread.wrong == found.all_wrong
    json.dumps(found.as_dict())


def test_equal_models_are_as_good_as_one() -> None:
    first = make_predictions(90, ties=False)
    found = put_together([first, first], resamples=20)
    assert found.scores["balanced_accuracy"] == score(first, resamples=20)["balanced_accuracy"]
    assert found.all_wrong == found.any_wrong


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_probabilities_of_any_sharpness_have_a_mean(scale: float) -> None:
    first = make_predictions(60, unknown=0)
    sharp = replace(first, logits=first.logits * scale)
    assert put_together([sharp, sharp], resamples=0).scores["accuracy"] == score(sharp, resamples=0)["accuracy"]


def test_nothing_known_is_no_error() -> None:
    unknown = replace(make_predictions(30), label=np.full(30, -1))
    found = put_together([unknown, unknown], resamples=10)
    assert (found.n, found.alone, found.scores["accuracy"].value, found.misread) == (0, None, None, None)
