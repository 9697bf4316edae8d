"""Anyone's images: a folder per class and a table, and how a source is chosen."""

import csv
import io
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsecaps.data.sources import SOURCES, open_data
from tests.data.sources.layouts import write_image, write_text
from tests.messages import message, refused


def write_dicom(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0" * 128 + b"DICM" + b"rest")


def test_a_folder_per_class(tmp_path: Path) -> None:
    for name in ("nevus/b.PNG", "nevus/a.jpg", "melanoma/c.tiff", "melanoma/d.bmp"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    write_dicom(tmp_path / "melanoma" / "IM000001")
    write_dicom(tmp_path / "melanoma" / "1.2.840.113619")
    for junk in (".DS_Store", "nevus/Thumbs.db", "nevus/._a.jpg", "nevus/.hidden/x.png"):
        (tmp_path / junk).parent.mkdir(exist_ok=True)
        (tmp_path / junk).touch()
    data = open_data(tmp_path)
    assert (data.source, data.classes, data.problems) == ("folder", ("melanoma", "nevus"), [])
    assert [(case.patient, case.label, case.split) for case in data.cases] == [
        ("melanoma/1.2.840.113619", 0, None),
        ("melanoma/IM000001", 0, None),
        ("melanoma/c.tiff", 0, None),
        ("melanoma/d.bmp", 0, None),
        ("nevus/a.jpg", 1, None),
        ("nevus/b.PNG", 1, None),
    ]
    message(data.notes[0])


def test_a_folder_per_class_below_splits(tmp_path: Path) -> None:
    for name in ("train/nevus/a.png", "Validation/nevus/b.png", "test/melanoma/c.png"):
        write_image(tmp_path / name)
    data = open_data(tmp_path)
    assert [(case.image.name, data.classes[case.label], case.split) for case in data.cases] == [
        ("b.png", "nevus", "val"),
        ("c.png", "melanoma", "test"),
        ("a.png", "nevus", "train"),
    ]
    assert data.problems == []


def test_a_class_may_be_called_test(tmp_path: Path) -> None:
    write_image(tmp_path / "test" / "a.png")
    write_image(tmp_path / "control" / "b.png")
    data = open_data(tmp_path)
    assert (data.classes, {case.split for case in data.cases}) == (("control", "test"), {None})


def test_all_that_is_odd_in_a_folder_is_named(tmp_path: Path) -> None:
    write_image(tmp_path / "train" / "nevus" / "a.png")
    write_image(tmp_path / "train" / "nevus" / "b.png")
    write_image(tmp_path / "test" / "Nevus" / "c.png")
    write_image(tmp_path / "train" / "nevus" / "deep" / "d.png")
    write_image(tmp_path / "train" / "e.png")
    write_image(tmp_path / "extra" / "f.png")
    write_text(tmp_path / "train" / "nevus" / "notes.txt", "text")
    write_text(tmp_path / "README", "text")
    (tmp_path / "test" / "empty").mkdir()
    (tmp_path / "test" / "nevus").mkdir()
    data = open_data(tmp_path)
    assert [case.image.name for case in data.cases] == ["a.png", "b.png"]
    message(*sorted(map(str, data.problems)))


HEADER = "image,label,patient,split,mask,frame,concept:blue veil,concept:network"


def manifest(folder: Path, *lines: str) -> Path:
    for name in ("a.png", "sub/b.png", "c.dcm", "m.png"):
        if not (folder / name).exists():
            write_image(folder / "x.png")
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / "x.png").rename(folder / name)
    return write_text(folder / "cases.csv", *lines)


def test_a_manifest(tmp_path: Path) -> None:
    table = manifest(
        tmp_path,
        HEADER,
        "a.png,nevus,P1,train,m.png,,1,0",
        "sub/b.png,melanoma,P2,Valid,,,0.0,1.0",
        "c.dcm,,P3,,,3,,",
        f"{tmp_path}/c.dcm,nevus,P3,test,,4,,1",
    )
    data = open_data(table)
    assert (data.source, data.root, data.problems, data.notes) == ("manifest", tmp_path, [], [])
    assert (data.classes, data.concepts) == (("melanoma", "nevus"), ("blue veil", "network"))
    assert [(case.image, case.label, case.patient, case.split, case.frame, case.row) for case in data.cases] == [
        (tmp_path / "a.png", 1, "P1", "train", None, 2),
        (tmp_path / "sub" / "b.png", 0, "P2", "val", None, 3),
        (tmp_path / "c.dcm", -1, "P3", None, 3, 4),
        (tmp_path / "c.dcm", 1, "P3", "test", 4, 5),
    ]
    assert [case.mask for case in data.cases] == [tmp_path / "m.png", None, None, None]
    assert [case.concepts for case in data.cases[:2]] == [(1, 0), (0, 1)]
    assert [math.isnan(value) for value in data.cases[3].concepts] == [True, False]


def test_a_manifest_without_patients_keeps_the_frames_of_a_file_together(tmp_path: Path) -> None:
    data = open_data(manifest(tmp_path, "image,label,frame", "a.png,x,", "c.dcm,x,0", "./c.dcm,y,1"))
    assert data.cases[1].patient == data.cases[2].patient != data.cases[0].patient
    message(*data.notes)


def test_a_manifest_speaks_for_its_folder(tmp_path: Path) -> None:
    for name in ("images/a.png", "images/b.png", "masks/a.png"):
        write_image(tmp_path / name)
    assert open_data(tmp_path).classes == ("images", "masks")
    table = write_text(
        tmp_path / "manifest.csv", "image,label,mask", "images/a.png,nevus,masks/a.png", "images/b.png,melanoma,"
    )
    data = open_data(tmp_path)
    assert (data.source, data.root, data.classes, data.problems) == ("manifest", tmp_path, ("melanoma", "nevus"), [])
    assert [case.mask for case in data.cases] == [tmp_path / "masks" / "a.png", None]
    assert data.cases == open_data(table).cases == open_data(f"manifest:{tmp_path}").cases
    assert open_data(f"folder:{tmp_path}").classes == ("images", "masks")
    table.rename(tmp_path / "cases.csv")
    with refused(FileNotFoundError):
        open_data(tmp_path, "manifest")


BAD_ROWS = {
    "none.png,nevus,P1,,,,,": "image 'none.png' is missing; correct the path or remove the row",
    "sub\\b.png,nevus,P1,,,,,": "image 'sub\\\\b.png' is missing; write / instead of \\",
    "A.png,nevus,P1,,,,,": "image 'A.png' is 'a.png' on disk; correct upper and lower case",
    "sub,nevus,P1,,,,,": "image 'sub' is missing; correct the path or remove the row",
    ",nevus,P1,,,,,": "the image is blank; write its path or remove the row",
    "a.png,nevus,,,,,,": "the patient is blank; write an id, or remove the column if there are none",
    "a.png,nevus,P1,later,,,,": "split is 'later'; write train, val or test, or leave it blank",
    "a.png,nevus,P1,,n.png,,,": "mask 'n.png' is missing; correct the path or remove the row",
    "a.png,nevus,P1,,,-1,,": "frame is '-1'; write a whole number from 0, or leave it blank",
    "a.png,nevus,P1,,,,yes,": "concept:blue veil is 'yes'; write 1 (present), 0 (absent) or leave it blank (unknown)",
    "a.png,nevus,P1,,,,,2": "concept:network is '2'; write 1 (present), 0 (absent) or leave it blank (unknown)",
    "a.png, nevus,P1,,,,,": "label ' nevus' has spaces around it; write 'nevus'",
    "a.png,NEVUS,P1,,,,,": "label 'NEVUS' and 'nevus' differ only in case; write 'nevus'",
    "./sub/../sub/b.png,nevus,P1,,,,,": "is already in row 2; remove one of the rows",
    "a.png,nevus": "the row has 2 cells and the header 8; check quotes and separators",
}


@pytest.mark.parametrize("line", BAD_ROWS)
def test_a_bad_row_is_named_and_left_out(line: str, tmp_path: Path) -> None:
    table = manifest(tmp_path, HEADER, "sub/b.png,nevus,P9,,,,,", "c.dcm,nevus,P9,,,,,", "", line)
    data = open_data(table)
    assert [case.row for case in data.cases] == [2, 3]
    assert len(data.problems) == 1
    message(data.problems[0])


def test_all_problems_of_a_manifest_come_together(tmp_path: Path) -> None:
    data = open_data(manifest(tmp_path, HEADER + ",age", "x.png,nevus,,soon,,,maybe,,", "a.png,nevus,P1,,,,1,,"))
    assert [problem.row for problem in data.problems] == [1, 2, 2, 2, 2]
    assert [case.row for case in data.cases] == [3]
    assert open_data(manifest(tmp_path, "image")).problems[0].row == 1


GOOD = {
    "image": ["a.png", "sub/b.png", "c.dcm"],
    "label": ["nevus", "melanoma", ""],
    "patient": ["P1", "P2"],
    "split": ["train", "VAL", "dev", ""],
    "frame": ["", "0", "7"],
    "concept:x": ["1", "0", "", "1.0"],
}
BAD = st.one_of(
    st.sampled_from(["", " ", "none.png", "Nevus", " nevus", "yes", "-1", "1e3", "²", '"', "a\nb", "..", "/", "~"]),
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
)


@st.composite
def tables(draw: st.DrawFn) -> list[list[str]]:
    optional = draw(st.lists(st.sampled_from(list(GOOD)[2:]), unique=True))
    columns = draw(st.permutations(["image", "label", *optional]))
    rows = []
    for _ in range(draw(st.integers(0, 6))):
        row = [draw(st.one_of(st.sampled_from(GOOD[column]), st.sampled_from(GOOD[column]), BAD)) for column in columns]
        rows.append(row + draw(st.sampled_from([[], [], [], ["extra"], [""]])))
    return [list(columns), *rows]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    manifest(folder)
    return folder


@given(table=tables(), separator=st.sampled_from(",;\t"))
def test_every_row_is_a_case_or_named_by_a_problem(table: list[list[str]], separator: str, images: Path) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=separator).writerows(table)
    (images / "cases.csv").write_bytes(text.getvalue().encode())
    data = open_data(images / "cases.csv")
    rows = {number for number, row in enumerate(table[1:], 2) if any(cell.strip() for cell in row)}
    cases, named = [case.row for case in data.cases], {problem.row for problem in data.problems} - {None}
    assert len(cases) == len(set(cases))
    assert set(cases) | named == rows
    assert not set(cases) & named
    assert all("\n" not in str(problem) for problem in data.problems)
    assert len({(case.image, case.frame) for case in data.cases}) == len(cases)
    assert {case.label for case in data.cases} - {-1} == set(range(len(data.classes)))
    for case in data.cases:
        written = dict(zip(table[0], table[(case.row or 0) - 1], strict=False))
        assert case.image.samefile(images / written["image"].strip())
        assert (data.classes[case.label] if case.label >= 0 else "") == written["label"].strip()
        assert written.get("patient", case.image.relative_to(images).as_posix()).strip() == case.patient


@given(content=st.one_of(st.binary(max_size=80), st.text('imagelbcopt:,;"\n\r 1.', max_size=80).map(str.encode)))
def test_nothing_but_a_value_error_escapes(content: bytes, images: Path) -> None:
    (images / "odd.csv").write_bytes(content)
    try:
        data = open_data(images / "odd.csv")
    except ValueError as error:
        lines = [str(error)]
    else:
        assert data.cases or data.problems
        lines = [str(problem) for problem in data.problems]
    assert all("\n" not in line for line in lines)


def test_sources_are_chosen_by_name_or_layout(tmp_path: Path) -> None:
    table = manifest(tmp_path, "image,label", "a.png,x")
    assert open_data(str(table)).source == "manifest"
    assert open_data(f"manifest:{table}").source == "manifest"
    assert open_data(table, source="manifest").source == "manifest"
    assert set(SOURCES) >= {
        *("cemri", "ph2", "derm7pt", "ph2d7", "wbcatt", "mnist", "affnist", "affnist-like", "folder", "manifest")
    }
    assert all(name == source.name for name, source in SOURCES.items())


def test_what_is_not_known_or_not_there_is_one_line(tmp_path: Path) -> None:
    with refused(ValueError):
        open_data(tmp_path, "x")
    with refused(FileNotFoundError):
        open_data(tmp_path / "nowhere")
    with refused(FileNotFoundError):
        open_data("cemri")
    with refused(ValueError):
        open_data(tmp_path)
    for name in SOURCES:
        with pytest.raises((FileNotFoundError, ValueError)):
            open_data(tmp_path / "nowhere", name)
    with refused(ValueError):
        open_data(tmp_path, "folder")
