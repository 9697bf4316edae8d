from dataclasses import replace

import numpy as np
import pytest

from parsecaps.audit.concept_audit import intervention_curve
from parsecaps.metrics.predictions import Predictions
from tests.explain.make import make_reasoning
from tests.messages import refused

WEIGHT = np.array([[2.0, 1.0, -1.0], [-2.0, -1.0, 1.0]])
BIAS = np.array([-0.8, 0.8])


def cases(count: int = 40) -> Predictions:
    """The class follows from the true concepts; the presences are often wrong, and some truths are unknown."""
    random = np.random.default_rng(0)
    reasoning = make_reasoning(WEIGHT, BIAS)
    concepts = random.integers(0, 2, (count, 3)).astype(float)
    presence = random.random((count, 3))
    label = reasoning.logits(np.where(concepts == 1, 0.9, 0.1)).argmax(1)
    return Predictions(
        logits=reasoning.logits(presence),
        label=label,
        patient=[f"p{i // 2}" for i in range(count)],
        name=[str(i) for i in range(count)],
        classes=("a", "b"),
        presence=presence,
        concepts=concepts,
        concept_names=("x", "y", "z"),
    )


def one_by_one(said: Predictions) -> list[float]:
    """The same in plain loops, most uncertain first."""
    reasoning = make_reasoning(WEIGHT, BIAS)
    right = np.zeros((len(said), 4))
    assert said.presence is not None
    assert said.concepts is not None
    for i in range(len(said)):
        presence = said.presence[i].copy()
        known = [j for j in range(3) if not np.isnan(said.concepts[i, j])]
        asked = sorted(known, key=lambda j: abs(said.presence[i, j] - 0.5))
        for count in range(4):
            right[i, count] = reasoning.logits(presence).argmax() == said.label[i]
            if count < len(asked):
                presence[asked[count]] = 0.9 if said.concepts[i, asked[count]] == 1 else 0.1
    return right.mean(0).tolist()


@pytest.mark.parametrize("unknown", [False, True])
def test_the_uncertain_first(unknown: bool) -> None:
    said = cases()
    if unknown:
        hidden = np.random.default_rng(1).random((40, 3)) < 0.4
        said = replace(said, concepts=np.where(hidden, np.nan, said.concepts))
    found = intervention_curve(make_reasoning(WEIGHT, BIAS), said, resamples=50)
    assert found.accuracy == pytest.approx(one_by_one(said))
    assert found.n == 40
    for value, interval in zip(found.accuracy[:-1], found.interval[:-1], strict=True):
        assert interval is not None
        assert interval[0] <= value <= interval[1]
        assert interval[0] < interval[1]


def test_all_corrected_is_all_right_in_any_order() -> None:
    uncertain, random = (
        intervention_curve(make_reasoning(WEIGHT, BIAS), cases(), order, repeats=5, resamples=0)  # type: ignore[arg-type]
        for order in ("uncertain", "random")
    )
    assert uncertain.accuracy[-1] == random.accuracy[-1] == 1
    assert uncertain.accuracy[0] == random.accuracy[0] < 1
    assert uncertain.interval == [None] * 4
    again = intervention_curve(make_reasoning(WEIGHT, BIAS), cases(), "random", repeats=5, resamples=0)
    assert again == random


def test_unlabelled_cases_are_left_out_and_the_rest_is_refused() -> None:
    said = cases()
    label = np.where(np.arange(40) < 10, -1, said.label)
    assert intervention_curve(make_reasoning(WEIGHT, BIAS), replace(said, label=label), resamples=0).n == 30
    with refused(ValueError):
        intervention_curve(make_reasoning(WEIGHT, BIAS), replace(said, label=np.full(40, -1)))
    with refused(ValueError):
        intervention_curve(make_reasoning(WEIGHT, BIAS), replace(said, concepts=None))
    with refused(ValueError):
        intervention_curve(make_reasoning(WEIGHT, BIAS), said, "clever")  # type: ignore[arg-type]
