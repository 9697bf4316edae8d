"""No case is left out in silence: it is in a part, or it is counted with the reason."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.config import DataSection
from parsecaps.data.cases import Case, DataSet, Split
from parsecaps.data.splits import (
    Division,
    by_fold,
    describe_parts,
    divide,
    fold_divisions,
    official,
    split_hash,
    write_split,
)
from tests.data.make import table
from tests.messages import message


def placed(patients: int, parts: Sequence[Split | None], images: int = 2) -> DataSet:
    """Patients of three classes, whose official parts repeat."""
    data = table([(f"p{i:03}", i // len(parts) % 3, images) for i in range(patients)], "xyz")
    cases = [replace(case, split=parts[int(case.patient[1:]) % len(parts)]) for case in data.cases]
    return replace(data, cases=cases)


def of_rest(data: DataSet, division: Division) -> Counter[Split | None]:
    return Counter(part for part, case in zip(division, data.cases, strict=True) if case.split is None)


def ph2d7() -> DataSet:
    """As many cases of each class and part as in PH2 and in the nevi and melanomas of Derm7pt."""
    cases = [Case(Path(f"/data/IMD{i}.bmp"), int(i >= 160), f"ph2:{i}") for i in range(200)]
    counts: dict[Split, tuple[int, int]] = {"train": (256, 88), "val": (100, 60), "test": (219, 100)}
    for part, by_class in counts.items():
        for label, count in enumerate(by_class):
            names = [f"{part}-{label}-{i}" for i in range(count)]
            cases += [Case(Path(f"/data/{name}.jpg"), label, f"derm7pt:{name}", split=part) for name in names]
    return DataSet("ph2d7", Path("/data"), ("nevus", "melanoma"), (), cases)


def test_what_has_no_official_part_is_dealt_in_the_proportions_of_the_rest() -> None:
    data = ph2d7()
    divided = divide(data)
    assert describe_parts(Counter(divided.division), divided.unused()) == "train 428, val 199, test 396"
    message(*divided.notes)
    for case, part in zip(data.cases, divided.division, strict=True):
        assert case.split in (None, part)
    melanomas = Counter(part for case, part in zip(data.cases[160:200], divided.division[160:200], strict=True))
    assert melanomas == {"train": 17, "val": 8, "test": 15}
    assert divide(data) == divided
    assert divide(data, DataSection(seed=1)).division != divided.division


def test_without_an_official_val_a_share_of_all_that_train_chooses() -> None:
    data = placed(120, ("train", "train", "train", "test", None, None))
    division = official(data, val=0.25)
    rest = of_rest(data, division)
    assert rest["test"] == pytest.approx(0.25 * 80, abs=2)
    assert division.count("val") == pytest.approx(0.25 * (120 + 60), abs=3)
    assert rest["val"] > 0
    assert set(official(data, val=0)) == {"train", "test"}


def test_the_official_test_part_that_is_kept_from_view_is_counted() -> None:
    data = placed(120, ("train", "train", "train", "val", "test", None))
    own = replace(data.cases[-1], patient="p004")  # of a patient of the test part, without one itself
    data = replace(data, cases=[*data.cases[:-1], own])
    divided = divide(data, DataSection(test_part="val"))
    assert divided.unused() == {"the official test part": 41}
    assert divided.division[-1] is None
    rest = of_rest(data, divided.division)
    assert rest["test"] == pytest.approx(0.25 * 40, abs=1)
    message(*divided.notes)
    assert describe_parts(Counter(divided.division), divided.unused()).endswith("unused 41 (the official test part)")


def test_a_case_without_a_part_goes_with_its_patient() -> None:
    data = table([("p", 0, 4), ("q", 1, 4), ("r", 0, 4), ("s", 1, 4)])
    parts: list[Split | None] = ["train", None, None, None] * 2 + ["test", None, "test", None] * 2
    data = replace(data, cases=[replace(case, split=part) for case, part in zip(data.cases, parts, strict=True)])
    assert official(data, val=0) == ["train"] * 8 + ["test"] * 8


def test_a_few_more_cases_follow_the_proportions_and_a_new_class_reaches_every_part() -> None:
    data = placed(90, ("train",) * 8 + ("val", "test"))
    few = [Case(Path(f"/data/few-{i}.png"), 0, f"few{i}") for i in range(3)]
    more = replace(data, cases=[*data.cases, *few])
    assert of_rest(more, official(more)) == {"train": 3}
    new = [replace(case, label=3) for case in few]
    more = replace(data, classes=(*data.classes, "new"), cases=[*data.cases, *new])
    assert of_rest(more, official(more)) == {"train": 1, "val": 1, "test": 1}


def test_where_only_the_test_cases_are_named_the_rest_trains() -> None:
    data = placed(60, ("test", None, None, None))
    divided = divide(data)
    for case, part in zip(data.cases, divided.division, strict=True):
        assert (part == "test") == (case.split == "test")
    assert divided.division.count("val") > 0
    message(divided.notes[0])
    assert official(placed(60, ("val", None)), val=0.2).count("val") == 60
    same = replace(data, cases=[replace(case, patient="one") for case in data.cases])
    assert set(divide(same).division) == {"test"}  # their patient is tested; the check says that nobody trains


def test_official_parts_that_cannot_be_used_are_named() -> None:
    divided = divide(placed(60, ("test",)))
    assert divided.division == divide(placed(60, (None,))).division
    message(*divided.notes)
    assert divide(placed(60, (None,))).notes == []


def test_authors_folds_take_in_what_has_none() -> None:
    data = placed(120, (None,))
    folds = [None if int(case.patient[1:]) % 4 == 0 else 1 + int(case.patient[1:]) % 3 for case in data.cases]
    folds[2] = 3  # beside fold 2 of its patient
    data = replace(data, cases=[replace(case, fold=fold) for case, fold in zip(data.cases, folds, strict=True)])
    divided = divide(data, DataSection(test_fold=[3], val=0))
    assert divided.unused() == {"of a tested patient, outside of the tested folds": 1}
    message(divided.notes[0])
    divisions, whose = fold_divisions(DataSection(folds=3), data)
    assert whose == "the author's folds"
    tested = Counter(i for division, *_ in divisions for i, part in enumerate(division) if part == "test")
    assert tested == dict.fromkeys(range(len(data)), 1)
    assert all(
        sum(division[i] == "test" for i in range(len(data)) if folds[i] is None) >= 16 for division, *_ in divisions
    )
    assert set(by_fold(data, test={1, 2, 3}).division) == {"test"}


def test_blank_rows_of_a_split_file_are_counted(tmp_path: Path) -> None:
    data = placed(6, ("train", "test"))
    write_split(tmp_path / "mine.csv", data, ["train"] * 4 + ["test"] * 5 + [None] * 3)
    divided = divide(data, DataSection(split=str(tmp_path / "mine.csv")))
    assert (divided.unused(), divided.problems, divided.notes) == ({"no part in mine.csv": 3}, [], ())
    readable = [i for i in range(len(data)) if i not in (0, 11)]
    assert divided.unused(readable) == {"no part in mine.csv": 2, "cannot be read": 2}


@pytest.mark.parametrize(
    ("parts", "how", "hashes"),
    [
        ((None,), {}, ("691345de7ad8", "c761f4b723f1")),
        (("train", "train", "train", "val", "test"), {}, ("d88c481cb317", "d88c481cb317")),
        (("train", "train", "train", "val", "test"), {"test_part": "val"}, ("8abcdbad3015", "a590978b6a70")),
        (("train", "train", "train", "test", "test"), {}, ("6a728793716d", "bbb3f53ddc1c")),
        ((None,), {"test_fold": [3]}, ("2e875cc95827", "9da705b4e5b4")),
        (("test",), {}, ("691345de7ad8", "c761f4b723f1")),
    ],
)
def test_where_all_or_none_have_a_part_the_split_is_what_it_was(
    parts: tuple[Split | None, ...], how: dict[str, object], hashes: tuple[str, str]
) -> None:
    """As before version 0.2 dealt the rest."""
    random = np.random.default_rng(0)
    data = table([(f"p{i:03}", int(random.integers(3)), int(random.integers(1, 9))) for i in range(120)], "abc")
    number = [int(case.patient[1:]) for case in data.cases]
    cases = [replace(case, split=parts[i % len(parts)], fold=i % 5) for case, i in zip(data.cases, number, strict=True)]
    data = replace(data, cases=cases)
    found = [split_hash(data, divide(data, DataSection(seed=seed, **how)).division) for seed in (0, 1)]  # type: ignore[arg-type]
    assert tuple(found) == hashes


PATIENT = st.tuples(
    st.integers(-1, 2),
    st.sampled_from(["train", "val", "test", None]),
    st.lists(st.booleans(), min_size=1, max_size=4),  # whether the table says the part of each image
)


@given(
    st.lists(PATIENT, min_size=4, max_size=30),
    st.sampled_from(["official", "val", "fold", "folds"]),
    st.sampled_from([0, 0.2]),
    st.integers(0, 5),
)
def test_no_patient_crosses_and_every_case_is_in_a_part_or_counted(
    patients: list[tuple[int, Split | None, list[bool]]], how: str, val: float, seed: int
) -> None:
    patients = [(0, "train", [True]), (1, "val", [True]), (2, "test", [True]), *patients]
    fold = {"train": 1, "val": 2, "test": 3, None: None}
    cases = [
        Case(
            Path(f"/data/{i}-{j}.png"), label, f"p{i}", split=part if said else None, fold=fold[part] if said else None
        )
        for i, (label, part, images) in enumerate(patients)
        for j, said in enumerate(images)
    ]
    data = DataSet("manifest", Path("/data"), ("a", "b", "c"), (), cases)
    divisions = {
        "official": lambda: [divide(data, DataSection(val=val, seed=seed))],
        "val": lambda: [divide(data, DataSection(test_part="val", val=val, seed=seed))],
        "fold": lambda: [divide(data, DataSection(test_fold=[2], val=val, seed=seed))],
        "folds": lambda: fold_divisions(DataSection(folds=3, val=val, seed=seed), data)[0],
    }[how]()
    for divided in divisions:
        sides = defaultdict(set)
        for case, part in zip(cases, divided.division, strict=True):
            sides[case.patient].add(part)
        assert all(len(parts) == 1 for parts in sides.values())
        assert divided.division.count(None) == sum(divided.unused().values())
        assert bool(divided.notes) == any(case.split is None for case in cases)
        kept_out = {case.patient for case in cases if case.split == "test"} if how == "val" else set()
        assert {p for p, parts in sides.items() if parts == {None}} == kept_out
    if how == "folds":
        tested = Counter(i for divided in divisions for i, part in enumerate(divided.division) if part == "test")
        assert tested == dict.fromkeys(range(len(cases)), 1)
