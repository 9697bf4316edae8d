"""The growth of routings: every routing takes every number of children, and what is drawn is what was measured."""

from pathlib import Path

import pytest
from PIL import Image

from benchmarks.complexity import MEASURED, ROUTINGS_MEASURED, children, draw_growth, growth_tables, measure_growth
from benchmarks.timing import Effort, in_new_process


def test_every_routing_is_measured_at_every_size(tmp_path: Path) -> None:
    growths = measure_growth(Effort(1, 0, 0), sizes=(64, 256), memory=False)
    assert [each.routing for each in growths] == [*ROUTINGS_MEASURED]
    for growth in growths:
        assert growth.children == [64, 256]
        assert 0 < growth.multiply_adds[0] < growth.multiply_adds[1]
    found = {growth.routing: growth.exponents["multiply_adds"] or 0 for growth in growths}
    assert found["dynamic to classes"] == pytest.approx(1, abs=0.05)  # a vote of every child for every class
    assert found["saa cell, all children"] > found["saa cell, radius 2"] + 0.2
    assert found["saa to classes"] < found["dynamic to classes"]
    assert len(growth_tables(growths)) == len(MEASURED) - 1  # memory was left out
    draw_growth(growths, tmp_path / "growth.png")
    with Image.open(tmp_path / "growth.png") as picture:
        assert picture.width > 1000


def test_memory_of_votes_grows_with_the_children() -> None:
    name = "dynamic to classes"
    few, many = (in_new_process("benchmarks.complexity", name, str(n))["growth"] for n in (1024, 16384))
    votes = 16384 * 10 * 16 * 4
    assert many > few + votes / 2


def test_children_are_the_same_for_all_routings() -> None:
    assert children(64).equal(children(64))
    assert {tuple(build(64)(children(64)).shape) for build in ROUTINGS_MEASURED.values()} == {(1, 16, 16), (1, 10, 16)}
