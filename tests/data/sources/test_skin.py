"""PH2, Derm7pt and both together: annotations to concepts, and what is wrong with a table."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from parsecaps.data.cases import SKIN_CONCEPTS
from parsecaps.data.sources import open_data
from parsecaps.data.splits import divide
from tests.data.sources.layouts import (
    PH2_ROWS,
    write_derm7pt,
    write_image,
    write_ph2_images,
    write_ph2_txt,
    write_ph2_xlsx,
    write_text,
)
from tests.messages import message, refused

X = math.nan
# typical, atypical network; veil; regular, irregular streaks; regular, irregular dots
PH2_TRUTH = {
    "IMD003": (0, (1, 0, 0, 0, 0, 0, 0)),
    "IMD009": (0, (0, 1, 0, 0, 0, 1, 0)),
    "IMD063": (1, (0, 1, 1, X, X, 0, 1)),
}
DERM7PT_TRUTH = {
    "NEL/NEL026.JPG": (0, (1, 0, 0, 0, 0, 1, 0), "train", 2),
    "AAL/aal012.jpg": (1, (0, 1, 1, 0, 1, 0, 1), "test", 3),
    "FDL/fdl003.jpg": (0, (0, 0, 1, 1, 0, 0, 0), "val", 6),
}


def same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return [repr(float(x)) for x in a] == [repr(float(x)) for x in b]


def test_clinical_photographs_of_derm7pt_are_of_the_same_cases(tmp_path: Path) -> None:
    root = write_derm7pt(tmp_path / "release_v0")
    dermoscopic = open_data(root)
    for case in dermoscopic.cases:
        assert case.row is not None
        write_image(root / "images" / "Clin" / f"c{case.patient}.jpg")
    data = open_data(f"derm7pt-clinical:{root}")
    assert [case.image.name for case in data.cases] == [f"c{case.patient}.jpg" for case in data.cases]
    for one, other in zip(dermoscopic.cases, data.cases, strict=True):
        assert (one.label, one.split, one.patient) == (other.label, other.split, other.patient)
        assert same(one.concepts, other.concepts)


def test_the_order_of_the_concepts_is_fixed() -> None:
    assert [concept.split()[0] for concept in SKIN_CONCEPTS] == [
        *("typical", "atypical", "blue-whitish", "regular", "irregular", "regular", "irregular")
    ]


@pytest.mark.parametrize(("write", "first_row"), [(write_ph2_xlsx, 14), (write_ph2_txt, 2)])
@pytest.mark.parametrize("inside", [False, True])
def test_ph2(write: Callable[[Path], Path], first_row: int, inside: bool, tmp_path: Path) -> None:
    root = write(tmp_path / "PH2Dataset")
    data = open_data(tmp_path if inside else root)
    assert (data.source, data.classes, data.concepts, data.problems) == (
        "ph2",
        ("nevus", "melanoma"),
        SKIN_CONCEPTS,
        [],
    )
    assert [case.patient for case in data.cases] == list(PH2_TRUTH)
    for row, case in enumerate(data.cases, first_row):
        label, concepts = PH2_TRUTH[case.patient]
        folder = root / "PH2 Dataset images" / case.patient
        assert case.image == folder / f"{case.patient}_Dermoscopic_Image" / f"{case.patient}.bmp"
        assert case.mask == folder / f"{case.patient}_lesion" / f"{case.patient}_lesion.bmp"
        assert (case.label, case.row, case.split) == (label, row, None)
        assert same(case.concepts, concepts)


@pytest.mark.parametrize("write", [write_ph2_xlsx, write_ph2_txt])
def test_ph2_names_every_bad_row(write: Callable[..., Path], tmp_path: Path) -> None:
    rows = [
        *PH2_ROWS,
        ("IMD063", 2, "T", "A", "A", "A"),
        ("IMD070", 7, "Q", "A", "yes", "A"),
        ("IMD071", 0, "", "", "", ""),
        ("IMD072", 0, "T", "A", "A", "A"),
    ]
    root = write(tmp_path, rows)
    (root / "PH2 Dataset images" / "IMD072" / "IMD072_Dermoscopic_Image" / "IMD072.bmp").unlink()
    (root / "PH2 Dataset images" / "IMD071" / "IMD071_lesion" / "IMD071_lesion.bmp").unlink()
    data = open_data(root)
    assert [case.patient for case in data.cases] == ["IMD003", "IMD009", "IMD063", "IMD071"]
    assert all(math.isnan(value) for value in data.cases[-1].concepts)
    assert data.cases[-1].mask is None
    message(*data.notes)
    first = data.cases[0].row or 0
    assert [problem.row for problem in data.problems] == [first + 3, first + 4, first + 4, first + 4, first + 6]
    message(*data.problems)


def test_ph2_text_row_that_lost_its_separators_is_named(tmp_path: Path) -> None:
    root = write_ph2_txt(tmp_path)
    table = root / "PH2_dataset.txt"
    table.write_text(table.read_text(encoding="utf-8").replace("|| IMD009 ||", "IMD009  "), encoding="utf-8")
    data = open_data(root)
    assert [case.patient for case in data.cases] == ["IMD003", "IMD063"]
    message(*data.problems)


def test_ph2_table_without_a_header_or_no_spreadsheet(tmp_path: Path) -> None:
    write_text(tmp_path / "a" / "PH2_dataset.txt", "|| something || else ||")
    with refused(ValueError):
        open_data(tmp_path / "a")
    write_text(tmp_path / "b" / "PH2_dataset.xlsx", "not a spreadsheet")
    with refused(ValueError):
        open_data(tmp_path / "b")
    write_ph2_images(tmp_path / "c", ["IMD003"])
    with refused(FileNotFoundError):
        open_data(tmp_path / "c", "ph2")


@pytest.mark.parametrize("inside", [False, True])
def test_derm7pt(inside: bool, tmp_path: Path) -> None:
    root = write_derm7pt(tmp_path / "release_v0")
    data = open_data(tmp_path if inside else root)
    assert (data.source, data.classes, data.concepts, data.problems) == (
        "derm7pt",
        ("nevus", "melanoma"),
        SKIN_CONCEPTS,
        [],
    )
    assert [str(case.image.relative_to(root / "images")) for case in data.cases] == list(DERM7PT_TRUTH)
    for case in data.cases:
        label, concepts, split, row = DERM7PT_TRUTH[str(case.image.relative_to(root / "images"))]
        assert (case.label, case.split, case.row, case.patient) == (label, split, row, str(row - 1))
        assert same(case.concepts, concepts)
        assert case.image.is_file()
    message(*data.notes)


def test_derm7pt_names_every_problem(tmp_path: Path) -> None:
    root = write_derm7pt(tmp_path)
    meta = root / "meta" / "meta.csv"
    text = meta.read_text(encoding="utf-8").replace("melanoma (in situ),1,atypical", "melanoma (in situ),1,odd")
    meta.write_text(text, encoding="utf-8")
    (root / "images" / "NEL" / "NEL026.JPG").unlink()
    write_text(root / "meta" / "valid_indexes.csv", "indexes", "4", "99", "x")
    write_text(root / "meta" / "test_indexes.csv", "indexes", "4")
    (root / "meta" / "train_indexes.csv").unlink()
    data = open_data(root)
    assert len(data) == 0
    assert [(Path(problem.file).name, problem.row) for problem in data.problems] == [
        ("train_indexes.csv", None),
        ("valid_indexes.csv", 3),
        ("valid_indexes.csv", 4),
        ("meta.csv", 6),
        ("meta.csv", 2),
        ("meta.csv", 3),
    ]
    message(*data.problems)


def test_derm7pt_bad_rows_still_count_for_the_indexes(tmp_path: Path) -> None:
    root = write_derm7pt(tmp_path)
    meta = root / "meta" / "meta.csv"
    lines = meta.read_text(encoding="utf-8").splitlines()
    lines[3] = "3,basal cell carcinoma"  # too short; the rows below keep their numbers
    write_text(meta, *lines)
    data = open_data(root)
    assert [(case.row, case.split) for case in data.cases] == [(2, "train"), (3, "test"), (6, "val")]
    assert [problem.row for problem in data.problems] == [4]


def test_derm7pt_cases_with_one_image_are_one_patient(tmp_path: Path) -> None:
    root = write_derm7pt(tmp_path)
    meta = root / "meta" / "meta.csv"
    meta.write_text(meta.read_text(encoding="utf-8").replace("FDL/fdl003.jpg", "NEL/Nel026.jpg"), encoding="utf-8")
    data = open_data(root)
    assert [case.patient for case in data.cases] == ["1", "2", "1"]
    message(*data.notes, containing="image")


def test_ph2d7_joins_both_without_mixing_patients(tmp_path: Path) -> None:
    ph2, derm7pt = write_ph2_txt(tmp_path / "both" / "PH2Dataset"), write_derm7pt(tmp_path / "both" / "release_v0")
    for data in (open_data(tmp_path / "both"), open_data(f"ph2d7:{ph2},{derm7pt}")):
        assert (data.source, data.concepts, data.problems) == ("ph2d7", SKIN_CONCEPTS, [])
        assert [case.patient for case in data.cases] == [
            *("ph2:IMD003", "ph2:IMD009", "ph2:IMD063", "derm7pt:1", "derm7pt:2", "derm7pt:5")
        ]
        assert [case.label for case in data.cases] == [0, 0, 1, 0, 1, 0]
        assert same(data.cases[2].concepts, PH2_TRUTH["IMD063"][1])
        assert same(data.cases[4].concepts, DERM7PT_TRUTH["AAL/aal012.jpg"][1])
        divided = divide(data)  # PH2 has no official parts, and takes part all the same
        assert divided.unused() == {}
        assert divided.division[3:] == ["train", "test", "val"]
        message(divided.notes[0])
    with refused(FileNotFoundError):
        open_data(f"ph2d7:{ph2},{tmp_path}/nowhere")


def test_an_image_whose_name_differs_twice_only_in_case_is_not_guessed(tmp_path: Path) -> None:
    root = write_derm7pt(tmp_path)
    write_image(root / "images" / "NEL" / "nel026.jpg")  # beside NEL026.JPG, while the table says Nel026.jpg
    data = open_data(root)
    assert [problem.row for problem in data.problems] == [2]
