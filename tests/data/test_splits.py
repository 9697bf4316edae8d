import csv
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.config import DataSection
from parsecaps.data.cases import SPLITS, Case, DataSet, Split
from parsecaps.data.sources import open_data
from parsecaps.data.splits import (
    Division,
    by_fold,
    divide,
    hold_out,
    k_folds,
    official,
    read_split,
    rows_of,
    split_hash,
    write_split,
)
from tests.data.make import table
from tests.messages import message, refused


def many(seed: int = 0, patients: int = 120, classes: int = 3) -> DataSet:
    random = np.random.default_rng(seed)
    rows = [(f"p{i:03}", int(random.integers(classes)), int(random.integers(1, 9))) for i in range(patients)]
    return table(rows, [f"class {c}" for c in range(classes)])


def sides(data: DataSet, division: Division) -> dict[str, set[str | None]]:
    found: dict[str, set[str | None]] = {}
    for case, part in zip(data.cases, division, strict=True):
        found.setdefault(case.patient, set()).add(part)
    return found


def test_hold_out_keeps_patients_whole_and_classes_even() -> None:
    data = many()
    division = hold_out(data, val=0.15, test=0.2)
    assert all(len(parts) == 1 for parts in sides(data, division).values())
    totals = Counter(case.label for case in data.cases)
    counts = Counter((case.label, part) for case, part in zip(data.cases, division, strict=True))
    for label, total in totals.items():
        for part, share in zip(SPLITS, (0.65, 0.15, 0.2), strict=True):
            assert abs(counts[label, part] / total - share) < 0.04


def test_hold_out_follows_from_the_seed() -> None:
    data = many()
    assert hold_out(data, seed=1) == hold_out(data, seed=1)
    assert hold_out(data, seed=1) != hold_out(data, seed=2)


def test_hold_out_without_validation_or_test() -> None:
    data = many()
    assert set(hold_out(data, val=0, test=0.3)) == {"train", "test"}
    assert set(hold_out(data, val=0, test=0)) == {"train"}


def test_a_rare_class_reaches_every_part() -> None:
    data = table([("big", 1, 50), ("small", 1, 2), ("tiny", 1, 1), *((f"n{i}", 0, 3) for i in range(30))])
    division = hold_out(data)
    rare = {part for case, part in zip(data.cases, division, strict=True) if case.label == 1}
    assert rare == set(SPLITS)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 12)), min_size=9, max_size=40),
    st.integers(0, 5),
    st.sampled_from([0.1, 0.2, 0.35]),
)
def test_no_patient_ever_crosses(patients: list[tuple[int, int]], seed: int, share: float) -> None:
    padded = [*patients, *((label, 1) for label in (0, 1, 2) * 3)]  # enough of each class for three parts
    data = table([(f"p{i}", label, count) for i, (label, count) in enumerate(padded)], "xyz")
    division = hold_out(data, val=share, test=share, seed=seed)
    assert all(len(parts) == 1 for parts in sides(data, division).values())
    for label in range(3):
        assert {p for c, p in zip(data.cases, division, strict=True) if c.label == label} == set(SPLITS)


@pytest.mark.parametrize(("val", "test"), [(-0.1, 0.2), (0.6, 0.4), (0, 1)])
def test_impossible_shares_are_refused(val: float, test: float) -> None:
    with refused(ValueError):
        hold_out(many(), val=val, test=test)


def test_a_class_with_too_few_patients_is_named() -> None:
    data = table([("p", 1, 40), *((f"n{i}", 0, 3) for i in range(9))], ["nevus", "melanoma"])
    with refused(ValueError):
        hold_out(data)


def test_k_folds_test_each_patient_once() -> None:
    data = many()
    divisions = k_folds(data, 5, val=0.2)
    tested = Counter(i for division in divisions for i in rows_of(division, "test"))
    assert set(tested.values()) == {1}
    assert len(tested) == len(data)
    sizes = [len(rows_of(division, "test")) for division in divisions]
    assert max(sizes) - min(sizes) < 0.1 * len(data)
    for division in divisions:
        assert all(len(parts) == 1 for parts in sides(data, division).values())
        assert rows_of(division, "val")


def test_authors_folds_leave_out_who_is_on_both_sides() -> None:
    data = many()
    cases = [
        replace(case, fold=1 + i % 3 if case.patient == "p000" else 1 + hash_of(case.patient) % 3)
        for i, case in enumerate(data.cases)
    ]
    data = replace(data, cases=cases)
    division = by_fold(data, test={3}, val=0.2).division
    for case, part in zip(cases, division, strict=True):
        assert (part == "test") == (case.fold == 3)
    assert all(len(parts - {None}) == 1 for parts in sides(data, division).values())
    with refused(ValueError):
        by_fold(data, test={7})
    with refused(ValueError):
        by_fold(many(), test={1})


def hash_of(patient: str) -> int:
    return int(patient[1:])


def test_official_parts_with_a_validation_of_our_own() -> None:
    data = many()
    cases = [replace(case, split="test" if hash_of(case.patient) % 4 == 0 else "train") for case in data.cases]
    data = replace(data, cases=cases)
    division = official(data, val=0.2)
    assert rows_of(division, "test") == [i for i, case in enumerate(cases) if case.split == "test"]
    share = len(rows_of(division, "val")) / sum(case.split == "train" for case in cases)
    assert 0.15 < share < 0.25
    assert all(len(parts) == 1 for parts in sides(data, division).values())
    with refused(ValueError):
        official(many())


def test_the_official_val_can_be_tested() -> None:
    """Its train part then trains and chooses, and its test part is not touched."""
    data = many()
    parts: tuple[Split, ...] = ("train", "train", "train", "val", "test")
    cases = [replace(case, split=parts[hash_of(case.patient) % 5]) for case in data.cases]
    data = replace(data, cases=cases)
    division = divide(data, DataSection(test_part="val", val=0.2)).division
    for case, part in zip(cases, division, strict=True):
        wanted = {"train": ("train", "val"), "val": ("test",), "test": (None,)}
        assert part in wanted[case.split or "test"]
    share = division.count("val") / sum(case.split == "train" for case in cases)
    assert 0.15 < share < 0.25
    assert divide(data, DataSection(test_part="test")) == divide(data)
    without = replace(data, cases=[case for case in cases if case.split != "val"])
    with refused(ValueError):
        divide(without, DataSection(test_part="val"))
    with refused(ValueError):
        divide(data, DataSection(test_part="val", test_fold=[1]))


def test_a_split_file_is_readable_and_comes_back(tmp_path: Path) -> None:
    data = many()
    division = hold_out(data)
    division[3] = None
    path = tmp_path / "split.csv"
    write_split(path, data, division)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0] == "image,frame,patient,class,split"
    first = data.cases[0]
    assert lines[1] == f"{first.image.name},,{first.patient},{data.classes[first.label]},{division[0]}"
    assert read_split(path, data) == (division, [])
    assert list(tmp_path.iterdir()) == [path]


def test_an_edited_split_is_checked_row_by_row(tmp_path: Path) -> None:
    data = table([("p", 0, 2), ("q", 1, 3)])
    path = tmp_path / "split.csv"
    path.write_text(
        "image,split\np-0.png,train\np-1.png,tset\nelsewhere.png,train\nq-0.png,TEST\nq-0.png,train\nq-1.png,\n",
        encoding="utf-8",
    )
    division, problems = read_split(path, data)
    assert division == ["train", None, "test", None, None]
    message(*problems)
    assert len(problems) == 4


def test_any_name_comes_back(tmp_path: Path) -> None:
    """From a file as it is written now, in which no name is a formula or two lines, and from one as it was before."""
    names = ["=cmd.png", "a\rb.png", "a\nb.png", "c\\d.png", " e .png ", "-f.png", "g,h.png"]
    cases = [Case(Path("/data") / name, i % 2, f"={name}") for i, name in enumerate([*names, "caf\udce9.png"])]
    data = DataSet("folder", Path("/data"), ("+", "-"), (), cases)
    division: Division = ["train", "val", "test", None] * 2
    path = tmp_path / "split.csv"
    write_split(path, data, division)
    assert read_split(path, data) == (division, [])
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 9
    assert rows[1] == ["'=cmd.png", "", "'==cmd.png", "'+", "train"]
    assert rows[8][0] == "caf\\xe9.png"
    assert len(split_hash(data, division)) == 12
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["image", "split"], *([n, p] for n, p in zip(names, division[:7], strict=True))])
    assert read_split(path, data.subset(range(7))) == (division[:7], [])


def test_frames_are_told_apart(tmp_path: Path) -> None:
    cases = [Case(Path("/data/all.gz"), i % 2, str(i), frame=i) for i in range(8)]
    data = DataSet("mnist", Path("/data"), ("0", "1"), (), cases)
    division: Division = ["train", "val", "test", None] * 2
    write_split(tmp_path / "s.csv", data, division)
    assert read_split(tmp_path / "s.csv", data) == (division, [])


def test_the_hash_names_the_division_and_nothing_else() -> None:
    data = many()
    division = hold_out(data)
    order = list(reversed(range(len(data))))
    assert split_hash(data.subset(order), [division[i] for i in order]) == split_hash(data, division)
    changed = list(division)
    changed[0] = "test" if changed[0] == "train" else "train"
    assert split_hash(data, changed) != split_hash(data, division)
    assert len(split_hash(data, division)) == 12


def test_names_do_not_depend_on_where_the_data_are_opened_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tables").mkdir()
    for name in ("x.png", "tables/y.png"):
        (tmp_path / name).touch()
    (tmp_path / "tables" / "cases.csv").write_text("image,label\n../x.png,a\ny.png,b\n", encoding="utf-8")
    names = set()
    for place, path in ((".", "tables/cases.csv"), ("tables", "cases.csv"), (".", "tables/../tables/cases.csv")):
        monkeypatch.chdir(tmp_path / place)
        data = open_data(path)
        names.add(tuple(data.name_of(case) for case in data.cases))
    data = open_data(str(tmp_path / "tables" / "cases.csv"))
    names.add(tuple(data.name_of(case) for case in data.cases))
    assert names == {((tmp_path / "x.png").as_posix(), "y.png")}
