"""The baseline without a tree keeps the contract of ParseCaps, and differs from it in the tree alone."""

from typing import Any

import pytest

from parsecaps.models import FlatCaps, ParseCaps
from parsecaps.models.summary import TOTAL_WITHOUT_DECODER, summarize
from tests.messages import refused
from tests.models.contract import SparseContract


def flat(**changes: Any) -> FlatCaps:
    return FlatCaps.from_preset("tiny", **{"num_classes": 4, **changes})


class TestFlat(SparseContract):
    tree = False

    def build(self) -> FlatCaps:
        return flat()


class TestFlatBottleneck(SparseContract):
    tree = False

    def build(self) -> FlatCaps:
        return flat(head="bottleneck", in_channels=3)


@pytest.mark.parametrize("preset", ["medical", "digits"])
def test_it_has_as_many_parameters_cells_and_primary_capsules_as_the_tree(preset: str) -> None:
    models = [kind.from_preset(preset, num_classes=3, num_concepts=7) for kind in (FlatCaps, ParseCaps)]
    rows = [{row.name: row for row in summarize(model)} for model in models]
    mine, tree = (each[TOTAL_WITHOUT_DECODER].parameters for each in rows)
    assert abs(mine / tree - 1) < 0.03
    assert rows[0].keys() == rows[1].keys()
    assert rows[0]["primary capsules"].n == rows[1]["primary capsules"].n
    assert rows[0]["initial block"] == rows[1]["initial block"]


def test_its_capsules_stay_as_long_as_they_are() -> None:
    with refused(ValueError):
        flat(dims=(4, 8, 8, 8))
