"""Several data sets as one: nobody's classes, concepts, patients or parts are taken for somebody else's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.config import DataSection
from parsecaps.data.cases import UNKNOWN, Case, DataSet, Problem, join
from parsecaps.data.sources import open_all, open_data, set_names
from parsecaps.data.splits import divide
from tests.data.make import folder_of_pictures, table
from tests.messages import message, refused

SKIN = DataSet(
    "manifest",
    Path("/data/skin"),
    ("nevus", "melanoma"),
    ("veil", "streaks"),
    [
        Case(Path("/data/skin/0.png"), 0, "p", concepts=(1.0, 0.0)),
        Case(Path("/data/skin/1.png"), 1, "q", concepts=(UNKNOWN, 1.0)),
        Case(Path("/data/skin/2.png"), -1, "p", concepts=()),
    ],
    problems=[Problem("cases.csv", 3, "the label is blank")],
    notes=["of one clinic"],
)
SCANS = DataSet("unlabelled", Path("/data/scans"), (), (), [Case(Path("/data/scans/0.png"), -1, "p")])
FILMS = DataSet(
    "folder",
    Path("/data/films"),
    ("nevus", "malaria", "healthy"),
    ("banded",),
    [Case(Path("/data/films/0.png"), 2, "p", concepts=(0.0,)), Case(Path("/data/films/1.png"), 0, "r")],
    look_alikes=True,
)
NAMES = ["skin", "scans", "films"]


def same(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return np.array_equal(np.array(one), np.array(other), equal_nan=True)


def test_names_are_those_of_the_sets_and_every_case_keeps_its_own() -> None:
    data = join(NAMES, [SKIN, SCANS, FILMS])
    assert data.classes == ("skin/nevus", "skin/melanoma", "films/nevus", "films/malaria", "films/healthy")
    assert data.concepts == ("skin/veil", "skin/streaks", "films/banded")
    assert [case.label for case in data.cases] == [0, 1, -1, -1, 4, 2]
    assert [case.patient for case in data.cases] == ["skin/p", "skin/q", "skin/p", "scans/p", "films/p", "films/r"]
    wanted = [
        (1.0, 0.0, UNKNOWN),
        (UNKNOWN, 1.0, UNKNOWN),
        (UNKNOWN,) * 3,
        (UNKNOWN,) * 3,
        (UNKNOWN, UNKNOWN, 0.0),
        (UNKNOWN,) * 3,
    ]
    assert all(same(case.concepts, want) for case, want in zip(data.cases, wanted, strict=True))
    assert [case.image for case in data.cases] == [case.image for each in (SKIN, SCANS, FILMS) for case in each.cases]
    assert (data.source, data.root) == ("manifest, unlabelled, folder", Path("/data"))
    assert (data.problems, data.notes) == (list(SKIN.problems), ["skin: of one clinic"])
    assert data.look_alikes
    assert data.members == (("skin", SKIN), ("scans", SCANS), ("films", FILMS))


def test_each_class_has_the_number_of_its_set() -> None:
    assert join(NAMES, [SKIN, SCANS, FILMS]).class_sets == (0, 0, 2, 2, 2)
    assert SKIN.class_sets == (0, 0)
    assert SCANS.class_sets == ()


def test_the_sets_of_a_configuration(tmp_path: Path) -> None:
    folder_of_pictures(tmp_path / "first", ("a", "b"), per_class=3, side=32)
    folder_of_pictures(tmp_path / "other" / "first", ("b", "c"), per_class=2, side=32)
    alone = open_all(DataSection(path=str(tmp_path / "first")))
    assert (alone.classes, alone.members) == (("a", "b"), ())
    both = open_all(DataSection(path=str(tmp_path / "first"), also=(str(tmp_path / "other" / "first"),)))
    assert both.classes == ("first/a", "first/b", "first-2/b", "first-2/c")
    assert len(both) == 6 + 4
    assert both.root == tmp_path


def test_each_set_is_divided_on_its_own() -> None:
    """One names its parts, another does not, and a third has no labels at all."""
    official = table([("p", 0, 2), ("q", 1, 2), ("r", 0, 2), ("s", 1, 2)])
    parts = {"p": "train", "q": "train", "r": "test", "s": "val"}
    official = replace(official, cases=[replace(case, split=parts[case.patient]) for case in official.cases])
    dealt = table([(f"p{i}", i % 2, 1) for i in range(40)], ("c", "d"))
    plain = replace(table([(f"p{i}", -1, 1) for i in range(20)], ()), source="unlabelled")
    data = join(["official", "dealt", "plain"], [official, dealt, plain])
    divided = divide(data, DataSection(val=0.1, test=0.2))
    assert divided.division[:8] == ["train"] * 4 + ["test"] * 2 + ["val"] * 2
    for section, count in ((divided.division[8:48], 40), (divided.division[48:], 20)):
        counts = [section.count(part) for part in ("train", "val", "test")]  # type: ignore[arg-type]
        assert counts == [round(0.7 * count), round(0.1 * count), round(0.2 * count)]
    labels = [case.label for case, part in zip(data.cases, divided.division, strict=True) if part == "val"]
    assert {2, 3} <= set(labels)  # both classes of the second set
    learning = divide(data, DataSection(val=0.1, test=0.0))
    assert learning.division[4:6] == ["test", "test"]  # what a set calls test is left for others
    assert "test" not in learning.division[8:]


def test_notes_of_the_split_name_their_set() -> None:
    part = table([("p", 0, 1), ("q", 1, 1), ("r", 0, 1), ("s", 1, 1)])
    tests = [replace(case, split="test" if case.patient == "p" else None) for case in part.cases]
    data = join(["one", "two"], [part, replace(part, cases=tests)])
    notes = divide(data, DataSection(val=0.0, test=0.0)).notes
    assert [note.partition(":")[0] for note in notes] == ["two"]
    message(*notes)


@pytest.mark.parametrize(
    "settings", [{"folds": 3}, {"folds": 3, "fold": 1}, {"test_fold": (1,)}, {"test_part": "val"}, {"split": "x.csv"}]
)
def test_other_ways_to_divide_are_refused(settings: dict[str, object]) -> None:
    with refused(ValueError):
        divide(join(NAMES, [SKIN, SCANS, FILMS]), DataSection(**settings))  # type: ignore[arg-type]


def test_drawn_sets_are_joined_with_drawn_ones_only() -> None:
    first, second = open_data("phantom:n=5,size=32"), open_data("phantom:n=4,size=32,seed=2")
    data = join(["one", "two"], [first, second])
    assert data.draw is not None
    assert first.draw is not None
    assert second.draw is not None
    drawn = data.draw([8, 0, 4, 5])
    assert np.array_equal(drawn, np.concatenate([second.draw([3]), first.draw([0, 4]), second.draw([0])]))
    with refused(ValueError):
        join(["skin", "phantom"], [SKIN, first])
    larger = join(["one", "two"], [first, open_data("phantom:n=4,size=40")])
    assert larger.draw is not None
    with refused(ValueError):
        larger.draw([0, 6])


def test_names_that_already_have_a_number() -> None:
    assert set_names(["x/a-b", "y/a-b", "z/a-b"]) == ["a-b", "a-b-2", "a-b-3"]
    assert set_names(["x/bus-2", "y/bus", "z/bus"]) == ["bus-2", "bus", "bus-3"]
    assert set_names(["isic-2019", "isic"]) == ["isic-2019", "isic"]
    assert set_names(["skin/Cases.csv", "a/data", "wbcatt:/x/b", "///", "images"]) == [
        *("skin", "a", "b", "data", "images")
    ]


@given(st.lists(st.sampled_from(["a", "x/a", "a-2", "a-2-2", "a/data", "b.csv", "b", "mnist:b"]), max_size=8))
def test_no_two_sets_are_called_the_same(paths: list[str]) -> None:
    names = set_names(paths)
    assert len(set(names)) == len(names) == len(paths)
    assert all(name and "/" not in name for name in names)
