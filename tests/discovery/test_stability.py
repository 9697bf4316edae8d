from itertools import permutations

import numpy as np
import pytest

from parsecaps.discovery.stability import concept_stability, correlation, match_concepts
from tests.messages import refused

GROUP = np.repeat(np.arange(40), 5)


def by_patient(seed: int, concepts: int = 4) -> np.ndarray:
    """Presences that differ more between patients than within one."""
    random = np.random.default_rng(seed)
    return random.normal(size=(40, concepts))[GROUP] + 0.3 * random.normal(size=(200, concepts))


def test_correlation_is_numpys_and_0_without_variance() -> None:
    first, second = by_patient(0), by_patient(1, 3)
    first[:, 2] = 0.7
    found = correlation(first, second)
    for i, j in ((0, 0), (3, 2), (1, 1)):
        assert found[i, j] == pytest.approx(np.corrcoef(first[:, i], second[:, j])[0, 1])
    assert found[2].tolist() == [0, 0, 0]


def test_concepts_in_another_order_are_found_again() -> None:
    first = by_patient(0)
    second = first[:, [2, 0, 3, 1]] + 0.2 * np.random.default_rng(1).normal(size=first.shape)
    match = match_concepts(first, second, GROUP, permutations=50)
    assert [(i, j) for i, j, _ in match.pairs] == [(0, 1), (1, 3), (2, 0), (3, 2)]
    assert match.mean > 0.95
    assert match.chance < 0.3
    assert match.p_value == 1 / 51


def test_no_other_pairing_sums_to_more() -> None:
    first, second = by_patient(0), by_patient(1)
    r = correlation(first, second)
    best = max(sum(r[i, order[i]] for i in range(4)) for order in permutations(range(4)))
    assert 4 * match_concepts(first, second, GROUP, permutations=1).mean == pytest.approx(best)


def test_unrelated_concepts_are_no_better_than_chance() -> None:
    """The best pairing is above 0 all the same; images of one patient alike make it larger still."""
    values = [match_concepts(by_patient(2 * i), by_patient(2 * i + 1), GROUP, permutations=40) for i in range(8)]
    assert np.mean([each.mean for each in values]) == pytest.approx(np.mean([each.chance for each in values]), abs=0.05)
    assert np.mean([each.chance for each in values]) > 0.05
    assert np.mean([each.p_value < 0.1 for each in values]) <= 0.4


def test_an_opposite_concept_is_not_the_same() -> None:
    first = by_patient(0, 1)
    assert match_concepts(first, -first, GROUP, permutations=1).mean == pytest.approx(-1)


def test_several_models() -> None:
    first = by_patient(0, 2)
    other = np.column_stack([first[:, 1], by_patient(9, 1)[:, 0]])  # finds the second concept again, not the first
    found = concept_stability([first, other, first[:, ::-1]], GROUP, permutations=5)
    assert set(found.matches) == {(0, 1), (0, 2), (1, 2)}
    assert found.by_concept[1] == pytest.approx(1)
    assert found.by_concept[0] < 0.75
    assert found.mean == pytest.approx(np.mean([match.mean for match in found.matches.values()]))
    with refused(ValueError):
        concept_stability([first], GROUP)
    with refused(ValueError):
        concept_stability([first, first[1:]], GROUP)


def test_a_concept_that_only_knows_the_class_is_found_again_by_chance_within_it() -> None:
    """The first concept is the class and noise of its own in each model, the second a property of each patient."""
    random = np.random.default_rng(0)
    label = (np.arange(40) % 2)[GROUP]
    own = random.normal(size=40)[GROUP]
    first, second = (
        np.stack([label + 0.3 * random.normal(size=200), own + 0.3 * random.normal(size=200)], 1) for _ in range(2)
    )
    found = concept_stability([first, second], GROUP, label, permutations=60)
    assert found.class_chances is not None
    assert found.by_concept[0] == pytest.approx(found.class_chances[0], abs=0.05)
    assert found.by_concept[1] > 0.8
    assert found.class_chances[1] < 0.4
    assert max(found.chances) < 0.4
    assert concept_stability([first, second], GROUP, np.full(200, -1), permutations=2).class_chances is None
