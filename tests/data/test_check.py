import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parsecaps.data.cache import PreparedImages, prepare_all
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import DataSet, Division, Problem
from parsecaps.data.check import DataCheck, check_data, concept_ceiling
from parsecaps.data.leaks import Fingerprints
from parsecaps.data.preparation import Preparation
from parsecaps.data.splits import Divided, hold_out
from tests.data.make import folder_of_pictures, picture, table
from tests.messages import message

NAN = float("nan")
PREPARATION = Preparation(size=32, channels=3)


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    data = folder_of_pictures(tmp_path / "pictures", per_class=8)
    concepts = [(float(i % 2), NAN if i == 3 else float(case.label)) for i, case in enumerate(data.cases)]
    cases = [replace(case, concepts=c) for case, c in zip(data.cases, concepts, strict=True)]
    return replace(data, concepts=("stripes", "veil"), cases=cases, notes=("a note",))


def prepare(data: DataSet, tmp_path: Path) -> PreparedImages:
    return prepare_all(data, PREPARATION, folder=tmp_path / "cache", skip_bad=True)


def run(data: DataSet, tmp_path: Path, division: Division | None = None, **options: object) -> DataCheck:
    division = hold_out(data, val=0.25, test=0.25) if division is None else division
    return check_data(data, prepare(data, tmp_path), Divided(division), **options)  # type: ignore[arg-type]


def test_a_good_data_set_is_safe_and_counted(data: DataSet, tmp_path: Path) -> None:
    check = run(data, tmp_path)
    assert check.safe
    assert (check.images, check.patients, check.images_per_patient) == (16, 8, (2, 2))
    assert {name: sum(counts.values()) for name, counts in check.by_class.items()} == {"a": 8, "b": 8}
    assert check.by_class["a"] == {"train": 4, "val": 2, "test": 2, "unused": 0}
    assert check.patients_by_part == {"train": 4, "val": 2, "test": 2, "unused": 0}
    veil = check.by_concept["veil"].values()
    assert [sum(c[kind] for c in veil) for kind in ("present", "absent", "unknown")] == [8, 7, 1]
    assert check.co_occurrence == [[8, 4], [4, 8]]
    assert check.sizes == {"48 x 48": 16}
    assert check.ceiling == 1.0
    assert (check.problems, check.leaks, check.odd, check.reasons) == ([], [], [], [])
    json.dumps(check.as_dict())


def test_leaks_are_unsafe_unless_allowed_and_then_remembered(data: DataSet, tmp_path: Path) -> None:
    division = hold_out(data, val=0.25, test=0.25)
    first = next(i for i, part in enumerate(division) if part == "train")
    division[first] = "test"
    check = run(data, tmp_path, division)
    assert not check.safe
    message(check.reasons[0], *check.leaks)
    allowed = run(data, tmp_path, division, allow_leaks=True)
    assert allowed.safe
    message(*allowed.notes, containing="WARNING")
    assert allowed.leaks == check.leaks


def test_bad_files_are_unsafe_unless_skipped_and_then_said(data: DataSet, tmp_path: Path) -> None:
    data.cases[0].image.write_bytes(b"")
    data = replace(data, problems=[Problem("cases.csv", 4, "the label is blank; write one")])
    check = run(data, tmp_path)
    assert not check.safe
    assert len(check.problems) == 2
    message(*check.problems)
    assert check.images == 15
    assert check.by_class["a"]["unused"] == 0
    assert check.unused == {"cannot be read": 1}
    skipped = run(data, tmp_path, skip_bad=True)
    assert skipped.safe
    message(*skipped.notes, containing="2")


def test_who_takes_no_part_is_counted_with_the_reason(data: DataSet, tmp_path: Path) -> None:
    data.cases[0].image.write_bytes(b"")
    division: Division = [None, None, *["train"] * 10, None, "test", "test", "test"]
    divided = Divided(division, left_out="no part in mine.csv", notes=["two were dealt"])
    check = check_data(data, prepare(data, tmp_path), divided, skip_bad=True)
    assert check.unused == check.as_dict()["unused"] == {"no part in mine.csv": 2, "cannot be read": 1}
    assert sum(counts["unused"] for counts in check.by_class.values()) == 2
    assert list(check.notes[:2]) == ["a note", "two were dealt"]


def test_masks_of_another_size_are_named(data: DataSet, tmp_path: Path) -> None:
    Image.fromarray(np.zeros((48, 48), np.uint8)).save(tmp_path / "good.png")
    Image.fromarray(np.zeros((40, 48), np.uint8)).save(tmp_path / "bad.png")
    masks = [tmp_path / "good.png", tmp_path / "bad.png", tmp_path / "gone.png"]
    cases = [replace(case, mask=mask, row=i + 2) for i, (case, mask) in enumerate(zip(data.cases, masks, strict=False))]
    check = run(replace(data, cases=[*cases, *data.cases[3:]]), tmp_path)
    assert len(check.problems) == 2
    message(*check.problems)


def test_odd_images_are_named(data: DataSet, tmp_path: Path) -> None:
    Image.fromarray(np.full((48, 48, 3), 7, np.uint8)).save(data.cases[1].image)
    Image.fromarray(picture(5, 20)).save(data.cases[2].image)
    check = run(data, tmp_path)
    assert len(check.odd) == 2
    message(*check.odd)
    assert check.safe


@pytest.mark.parametrize("change", ["one class", "no training", "one patient", "untrained class"])
def test_what_cannot_be_trained_on_is_unsafe(change: str, data: DataSet, tmp_path: Path) -> None:
    division: Division | None = None
    if change == "one class":
        data = replace(data, classes=("a",), cases=[replace(case, label=0) for case in data.cases])
    elif change == "no training":
        division = ["test"] * 16
    elif change == "one patient":
        cases = [replace(case, patient="same" if case.label else case.patient) for case in data.cases]
        data, division = replace(data, cases=cases), ["train"] * 16
    else:
        division = ["train" if case.label == 0 else "test" for case in data.cases]
    expected = {
        "one class": "at least two classes are needed; found a",
        "no training": "no case is in the training part",
        "one patient": "class b has one patient only",
        "untrained class": "class b has no case in the training part",
    }
    reasons = run(data, tmp_path, division).reasons
    assert any(expected[change] in reason for reason in reasons)


def test_the_ceiling_is_what_the_best_reader_reaches() -> None:
    data = table([(f"p{i}", label, 1) for i, label in enumerate([0, 0, 1, 1, 1, 0])])
    concepts = [(1.0, 0.0), (1.0, 0.0), (1.0, 0.0), (0.0, NAN), (0.0, NAN), (NAN, NAN)]
    cases = [replace(case, concepts=c) for case, c in zip(data.cases, concepts, strict=True)]
    none = Fingerprints(np.zeros((6, 32), np.uint8), np.zeros((6, 256), np.uint8))
    prepared = PreparedImages(np.zeros((6, 1, 8, 8), np.uint8), none, [(8, 8)] * 6, [""] * 6, [])
    assert concept_ceiling(CaseSet(replace(data, concepts=("x", "y"), cases=cases), prepared)) == (0.8, 5)
    assert concept_ceiling(CaseSet(data, prepared)) == (None, 0)
