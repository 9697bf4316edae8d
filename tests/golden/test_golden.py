"""The package gives the results that it gave before the redesign: see make_golden."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.golden.make_golden import HERE, MODELS, measure, measure_training


@pytest.mark.parametrize("name", MODELS)
def test_a_model_saved_before_says_the_same(name: str) -> None:
    torch.set_num_threads(1)
    assert first_difference(measure(HERE / name), _stored(name), 1e-5) is None


def test_training_goes_the_same_way(tmp_path: Path) -> None:
    found = measure_training(tmp_path)
    assert first_difference(found, _stored("training"), 1e-4) is None


@pytest.mark.parametrize(
    ("found", "where"),
    [
        ({"a": [[1.0, 2.0], [3.0, 4.0]], "b": "x"}, None),
        ({"a": [[1.0, 2.0], [3.0, 4.00003]], "b": "x"}, None),
        ({"a": [[1.0, 2.0], [3.0, 4.0001]], "b": "x"}, "a[1][1] is 4.0001, not 4.0"),
        ({"a": [[1.0, 2.0], [3.0, math.nan]], "b": "x"}, "a[1][1] is nan, not 4.0"),
        ({"a": [[1.0, 2.0]], "b": "x"}, "a has 1 entries, not 2"),
        ({"a": [[1.0, 2.0], [3.0, None]], "b": "x"}, "a[1][1] is None, not 4.0"),
        ({"a": [[1.0, 2.0], [3.0, 4.0]], "b": "y"}, "b is 'y', not 'x'"),
        ({"a": [[1.0, 2.0], [3.0, 4.0]], "c": "x"}, ": only one has b, c"),
    ],
)
def test_the_first_difference_is_named(found: Any, where: str | None) -> None:
    assert first_difference(found, {"a": [[1.0, 2.0], [3.0, 4.0]], "b": "x"}, 1e-5) == where


def first_difference(found: Any, stored: Any, tolerance: float, place: str = "", scale: float = 0.0) -> str | None:
    """Where two results differ first, and how; None where they do not.

    A number may differ by the tolerance times the largest number of the array it is in, or times 0.01 if that is less,
    for some are 0 but for rounding; one on its own by the tolerance times 1 at least.
    """
    if isinstance(stored, dict) and isinstance(found, dict):
        if other := sorted(found.keys() ^ stored.keys()):
            return f"{place}: only one has {', '.join(other)}"
        pairs = [(f"{place}.{key}".lstrip("."), found[key], stored[key], 0.0) for key in stored]
    elif isinstance(stored, list) and isinstance(found, list):
        if len(found) != len(stored):
            return f"{place} has {len(found)} entries, not {len(stored)}"
        scale = scale or _largest(stored)
        pairs = [(f"{place}[{i}]", *both, scale) for i, both in enumerate(zip(found, stored, strict=True))]
    else:
        return None if _same(found, stored, tolerance, scale) else f"{place} is {found!r}, not {stored!r}"
    differences = (first_difference(a, b, tolerance, name, inner) for name, a, b, inner in pairs)
    return next((each for each in differences if each is not None), None)


def _same(found: Any, stored: Any, tolerance: float, scale: float) -> bool:
    if not isinstance(stored, float) or type(found) not in (int, float):
        return type(found) is type(stored) and bool(found == stored)
    return math.isclose(found, stored, rel_tol=tolerance, abs_tol=tolerance * max(scale or 1, 0.01)) or (
        math.isnan(found) and math.isnan(stored)
    )


def _largest(values: Any) -> float:
    """The largest magnitude in an array of numbers; 0 where it is none, or holds nothing but 0."""
    if isinstance(values, list):
        return max(map(_largest, values), default=0.0)
    return abs(values) if isinstance(values, float) and math.isfinite(values) else 0.0


def _stored(name: str) -> Any:
    return json.loads((HERE / f"{name}.json").read_text(encoding="utf-8"))
