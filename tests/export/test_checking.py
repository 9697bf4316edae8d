"""A check that fails says why, and one that cannot tell two classes apart does not fail."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from parsecaps.export.checking import compare_answers, compare_maps, compare_trees, flows
from tests.messages import refused


def answers(*probabilities: float, presence: float = 0.5) -> dict[str, Any]:
    row = np.array([probabilities])
    return {"logits": np.log(row), "probabilities": row, "presence": np.array([[presence]])}


def test_answers_may_be_off_by_a_little() -> None:
    assert compare_answers(answers(0.7, 0.3), answers(0.70005, 0.29995)) == pytest.approx(5e-5)


def test_another_class_is_refused_but_not_where_two_are_equal() -> None:
    with refused(ValueError):
        compare_answers(answers(0.7, 0.3), answers(0.7, 0.3) | {"logits": np.array([[0.0, 1.0]])})
    compare_answers(answers(0.50003, 0.49997), answers(0.49997, 0.50003))


def test_presences_and_numbers_that_are_none() -> None:
    with refused(ValueError):
        compare_answers(answers(0.7, 0.3), answers(0.7, 0.3, presence=0.6))
    with refused(ValueError):
        compare_answers(answers(0.7, 0.3), answers(0.7, 0.3, presence=np.nan))


def maps(*peaks: float) -> dict[str, Any]:
    drawn = np.zeros((1, len(peaks), 40, 40), np.float32)
    drawn[0, :, 5, 5] = peaks
    return answers(0.7, 0.3) | {"maps": drawn}


def test_maps_are_measured_by_their_own_maximum() -> None:
    assert compare_maps(maps(1.0, 0.1), maps(1.0, 0.1)) == 0
    compare_maps(maps(1.0, 0.1), maps(1.0005, 0.1))
    compare_maps(maps(0.0, 0.0), maps(0.0, 0.0))
    with refused(ValueError):
        compare_maps(maps(1.0, 0.1), maps(1.0, 0.102))


def test_a_map_may_be_what_pytorch_itself_gives_after_rounding() -> None:
    drawn: list[float] = []

    def by_rounding() -> Iterator[np.ndarray]:
        for value in (0.1, 0.104, 0.2):
            drawn.append(value)
            yield maps(1.0, value)["maps"][0]

    compare_maps(maps(1.0, 0.1), maps(1.0, 0.103), by_rounding)
    assert drawn == [0.1, 0.104]  # no more than needed
    with refused(ValueError):
        compare_maps(maps(1.0, 0.1), maps(1.0, 0.21), by_rounding)


def test_the_map_of_the_class_is_not_compared_where_two_classes_are_equal() -> None:
    tied = answers(0.50001, 0.49999)
    assert compare_maps(maps(1.0, 0.5) | tied, maps(1.0, 0.1) | tied) == 0


def trees(top: float) -> dict[str, Any]:
    down = np.array([[[0.5, 0.5, 0, 0], [0, 0, 1, 0]]])
    return maps(1.0) | {"tree_top": np.array([[top, 1 - top]]), "tree_down_1": down}


def test_trees_are_compared_by_what_flows() -> None:
    shares, flow = flows(trees(0.25), 0)
    assert shares.tolist() == [0.25, 0.75]
    assert flow.sum(0).tolist() == [0.125, 0.125, 0.75, 0]
    compare_trees(trees(0.25), trees(0.2501))
    with refused(ValueError):
        compare_trees(trees(0.25), trees(0.3))
    other = trees(0.25)
    other["tree_down_1"] = np.array([[[0.5, 0.5, 0, 0], [0, 0, 0.995, 0.005]]])  # a route that was shut
    compare_trees(trees(0.25), other)
    other["tree_down_1"] = np.array([[[0.5, 0.5, 0, 0], [0, 0, 0.9, 0.1]]])
    with refused(ValueError):
        compare_trees(trees(0.25), other)
