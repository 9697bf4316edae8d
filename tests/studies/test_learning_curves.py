"""Shares of the patients lie within each other, and nobody who is tested is trained on."""

import itertools
from pathlib import Path

import pytest

from parsecaps.data.cases import Case
from studies import learning_curves


def cases(patients: int, images: int) -> list[Case]:
    return [Case(Path(f"{p}-{i}.png"), p % 2, f"p{p}") for p in range(patients) for i in range(images)]


def test_a_share_is_within_every_larger_one() -> None:
    whole = cases(40, 3)
    drawn = [learning_curves.draw(whole, share, seed=0) for share in learning_curves.SHARES]
    patients = [{case.patient for case in each} for each in drawn]
    assert [len(each) for each in patients] == [4, 10, 20, 40]
    assert all(small < large for small, large in itertools.pairwise(patients))
    assert all(len([c for c in drawn[0] if c.patient == patient]) == 3 for patient in patients[0])
    assert {case.label for case in drawn[0]} == {0, 1}
    assert {case.patient for case in learning_curves.draw(whole, 25, seed=1)} != patients[1]


@pytest.mark.parametrize("name", learning_curves.SETS)
def test_nobody_who_is_tested_is_trained_on(name: str, data_root: Path) -> None:
    data, train, test = learning_curves.open_set(data_root, name)
    assert not {case.patient for case in train} & {case.patient for case in test}
    assert len(test) > 300
    assert {case.label for case in train} == {case.label for case in test} == set(range(len(data.classes)))
