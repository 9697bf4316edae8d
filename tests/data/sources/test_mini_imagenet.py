"""mini-ImageNet: its tables part classes, so images are parted anew; rows without an image are named."""

from pathlib import Path

import pytest

from parsecaps.config import DataSection
from parsecaps.data.sources import open_data
from parsecaps.data.splits import divide
from tests.data.sources.layouts import write_image, write_text
from tests.messages import message, refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five images of a class in each table."""
    for table, name in (("train", "n01532829"), ("val", "n01855672"), ("test", "n01930112")):
        rows = [f"{name}{i:08d}.jpg,{name}" for i in range(1, 6)]
        for row in rows:
            write_image(tmp_path / "images" / row.partition(",")[0])
        write_text(tmp_path / f"{table}.csv", "filename,label", *rows)
    return tmp_path


def test_images_of_all_tables_are_parted_anew(folder: Path) -> None:
    data = open_data(folder)
    assert (data.source, data.concepts, data.problems) == ("mini-imagenet", (), [])
    assert data.classes == ("n01532829", "n01855672", "n01930112")
    assert [case.label for case in data.cases] == [0] * 5 + [1] * 5 + [2] * 5
    assert all(case.split is None for case in data.cases)
    assert len({case.patient for case in data.cases}) == 15
    division = divide(data, DataSection(path=str(folder), val=0.2, test=0.2)).division
    for part in ("train", "test"):
        assert {case.label for case, own in zip(data.cases, division, strict=True) if own == part} == {0, 1, 2}


def test_what_is_wrong_is_named_with_its_row(folder: Path) -> None:
    (folder / "images" / "n0153282900000002.jpg").unlink()
    write_text(folder / "val.csv", "filename,label", ",n01855672")
    (folder / "test.csv").unlink()
    data = open_data(folder)
    assert len(data) == 4
    message(*data.problems)
    with refused(FileNotFoundError):
        open_data(f"mini-imagenet:{folder / 'images'}")


def test_other_tables_beside_images_are_not_taken_for_it(tmp_path: Path) -> None:
    write_image(tmp_path / "images" / "a.jpg")
    write_text(tmp_path / "train.csv", "image,label", "images/a.jpg,x")
    assert open_data(tmp_path).source == "folder"
