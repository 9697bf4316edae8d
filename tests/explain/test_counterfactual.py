from itertools import product

import numpy as np
import pytest

from parsecaps.explain.counterfactual import MARGIN, counterfactual
from parsecaps.explain.intervention import ConceptReasoning
from tests.explain.make import make_reasoning
from tests.messages import refused

SINGLE = ("a", "b", "c", "d", "e", "f")
GROUPED = ("a", "size=1", "size=2", "size=3", "b", "hue=x", "hue=y")


def all_changes(reasoning: ConceptReasoning, presence: np.ndarray) -> list[dict[str, bool]]:
    """Every set of changes, by trying all: for each attribute nothing or another value, for each concept on or off."""
    seen = reasoning.seen(presence)
    choices: list[list[dict[str, bool]]] = []
    for number in np.unique(reasoning.group):
        members = np.flatnonzero(reasoning.group == number)
        if len(members) == 1:
            changes = [{reasoning.concepts[members[0]]: not seen[members[0]]}]
        else:
            settled = seen[members].sum() == 1
            changes = [{reasoning.concepts[j]: True} for j in members if not (settled and seen[j])]
        choices.append([{}, *changes])
    return [{name: to for part in parts for name, to in part.items()} for parts in product(*choices)]


def brute_force(reasoning: ConceptReasoning, presence: np.ndarray, target: int | None) -> tuple[int, float] | None:
    """The least number of changes, and the widest lead with that many."""
    was = int(reasoning.logits(presence).argmax())
    best = None
    for changes in all_changes(reasoning, presence):
        logits = reasoning.logits(reasoning.change(presence, changes))
        if target is None:
            lead = max(logits[k] for k in range(len(logits)) if k != was) - logits[was]
        else:
            lead = logits[target] - max(logits[k] for k in range(len(logits)) if k != target)
        if lead >= MARGIN and (best is None or (len(changes), -lead) < best):
            best = len(changes), -lead
    return None if best is None else (best[0], -best[1])


@pytest.mark.parametrize("names", [SINGLE, GROUPED])
@pytest.mark.parametrize("num_classes", [2, 3, 4])
def test_no_smaller_set_of_changes_flips_it(names: tuple[str, ...], num_classes: int) -> None:
    random = np.random.default_rng(num_classes)
    sizes = set()
    for _ in range(6):
        weight, bias = random.normal(size=(num_classes, len(names))), random.normal(size=num_classes) * 2
        reasoning = make_reasoning(weight, bias, names)
        presence = random.random(len(names))
        was = int(reasoning.logits(presence).argmax())
        for target in (None, *(k for k in range(num_classes) if k != was)):
            expected = brute_force(reasoning, presence, target)
            found = counterfactual(reasoning, presence, None if target is None else reasoning.classes[target])
            if expected is None:
                assert found is None
                continue
            assert found is not None
            logits = reasoning.logits(reasoning.change(presence, found.changes))
            rival = (
                was if target is None else max((k for k in range(num_classes) if k != target), key=lambda k: logits[k])
            )
            winner = (
                max((k for k in range(num_classes) if k != was), key=lambda k: logits[k]) if target is None else target
            )
            assert len(found.changes) == expected[0]
            assert logits[winner] - logits[rival] == pytest.approx(expected[1], abs=1e-5)
            assert found.diagnosis == reasoning.classes[int(logits.argmax())] != found.was == reasoning.classes[was]
            sizes.add(len(found.changes))
    assert len(sizes) > 1


def test_the_numbers_of_the_answer() -> None:
    reasoning = make_reasoning(np.array([[4.0, 1, 0], [0, 0, 1]]), temperature=2)
    presence = np.array([0.8, 0.2, 0.3])  # 3.4 against 0.3
    found = counterfactual(reasoning, presence)
    assert found is not None
    assert found.changes == {"c0": False, "c2": True}  # 0.6 against 0.9; one of them alone is not enough
    assert found.presence.tolist() == [0.1, 0.2, 0.9]
    assert (found.was, found.diagnosis) == ("class 0", "class 1")
    assert found.before == pytest.approx([1 / (1 + np.exp(-3.1 / 2)), 1 / (1 + np.exp(3.1 / 2))])
    assert found.after == pytest.approx([1 / (1 + np.exp(0.3 / 2)), 1 / (1 + np.exp(-0.3 / 2))])


def test_where_nothing_flips_it_there_is_none() -> None:
    reasoning = make_reasoning(np.array([[1.0, 1], [0, 0], [1, 1]]), np.array([5.0, 0, 0]))
    assert counterfactual(reasoning, np.array([0.5, 0.5])) is None
    assert counterfactual(reasoning, np.array([0.5, 0.5]), "class 1") is None


def test_the_diagnosis_it_has_needs_no_change() -> None:
    reasoning = make_reasoning(np.array([[1.0], [0.0]]))
    found = counterfactual(reasoning, np.array([0.8]), "class 0")
    assert found is not None
    assert (found.changes, found.diagnosis) == ({}, "class 0")
    with refused(ValueError):
        counterfactual(reasoning, np.array([0.8]), "other")


def test_a_hundred_concepts_are_still_exact() -> None:
    """Against one class the s best changes are known by sorting; with two classes that is the whole problem."""
    random = np.random.default_rng(5)
    weight = random.normal(size=(2, 100))
    reasoning = make_reasoning(weight, np.array([40.0, 0]))
    presence = random.random(100)
    moved = np.where(presence > 0.5, 0.1, 0.9) - presence
    gains = np.sort((weight[1] - weight[0]) * moved)[::-1]
    lead = float(np.diff(reasoning.logits(presence))[0])
    needed = next(s for s in range(101) if lead + gains[:s].sum() >= MARGIN)
    assert needed > 10
    for target in (None, "class 1"):
        found = counterfactual(reasoning, presence, target)
        assert found is not None
        assert len(found.changes) == needed
