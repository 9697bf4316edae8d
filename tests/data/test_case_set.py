from dataclasses import replace

import numpy as np
import pytest

from parsecaps.data.case_set import CaseSet
from tests.data.test_batches import prepared


@pytest.fixture
def cases() -> CaseSet:
    """Rows 5, 3, 9 and 1 of twenty, of which row 3 could not be read."""
    data, images = prepared()
    images.sizes[3] = (0, 0)
    return CaseSet(data, images, [5, 3, 9, 1])


def test_unreadable_cases_are_left_out(cases: CaseSet) -> None:
    assert cases.rows == [5, 9, 1]
    assert len(cases) == 3
    assert len(CaseSet(cases.data, cases.prepared)) == 19


def test_everything_comes_in_the_order_of_the_rows(cases: CaseSet) -> None:
    assert cases.labels.tolist() == [5 % 3, 9 % 3, 1 % 3]
    assert cases.patients == [case.patient for case in cases] == ["p5", "p9", "p1"]
    assert cases.images[:, 0, 4, 4].tolist() == [5, 9, 1]
    (batch,) = cases.batches()
    assert (batch.image[:, 0, 4, 4] * 255).round().tolist() == [5, 9, 1]


def test_concepts_are_found_by_name(cases: CaseSet) -> None:
    nan = float("nan")
    np.testing.assert_array_equal(cases.concepts, [[1, nan]] * 3)
    np.testing.assert_array_equal(cases.concepts_named(["other", "c"]), [[nan, 1]] * 3)


def test_a_name_has_the_frame_of_a_file_with_several(cases: CaseSet) -> None:
    data, root = cases.data, cases.data.root
    data = replace(data, cases=[replace(case, image=root / "a.dcm", frame=i) for i, case in enumerate(data.cases)])
    assert CaseSet(data, cases.prepared, [2]).names == ["a.dcm#2"]


def test_subsets_count_positions(cases: CaseSet) -> None:
    assert cases.subset([2, 0]).rows == [1, 5]
    assert CaseSet(cases.data, cases.prepared).spread(3).rows == [0, 10, 19]
    assert cases.spread(8).rows == cases.rows
