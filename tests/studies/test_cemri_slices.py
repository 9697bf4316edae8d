"""CE-MRI: splits that keep a patient on one side, shares of the patients, and slices cropped to the tumour."""

from pathlib import Path

import numpy as np
from PIL import Image

from parsecaps.data.cases import Case, DataSet
from parsecaps.data.sources import open_data
from parsecaps.data.splits import rows_of
from studies.cemri_slices import crop_tumours, divide_by_fold
from tests.studies.cemri import write_cemri

# patient id, label (1 to 3) and fold of each slice; MR001 has slices in folds 1 and 3 under two ids
SLICES = [("100360", 1, 1), ("MR001", 2, 1), ("MR001B", 2, 3), ("MR002", 3, 2), ("MR003", 3, 3)]


def many() -> DataSet:
    """24 patients of 4 slices, 8 of each class; the last 4 are in fold 2."""
    cases = [Case(Path(f"{i}.mat"), i // 4 % 3, f"p{i // 4}", fold=1 if i < 80 else 2) for i in range(96)]
    return DataSet("cemri", Path(), ("a", "b", "c"), (), cases)


def test_a_tested_patient_is_not_trained_on(tmp_path: Path) -> None:
    data = open_data(write_cemri(tmp_path, SLICES))
    assert divide_by_fold(data, train={1, 2}, test={3}) == ["train", None, "test", "train", "test"]
    published = divide_by_fold(data, train={1, 2}, test={3}, as_published=True)
    assert published == ["train", "train", "test", "train", "test"]
    assert divide_by_fold(data, train={1}, test={2}) == ["train", "train", None, "test", None]


def test_a_share_has_whole_patients_of_every_class() -> None:
    data = many()
    half = rows_of(divide_by_fold(data, train={1}, test={2}, share=0.5), "train")
    chosen = {data.cases[row].patient for row in half}
    assert len(half) == 4 * len(chosen)
    assert [sum(int(name[1:]) % 3 == label for name in chosen) for label in range(3)] == [4, 4, 3]
    assert half != rows_of(divide_by_fold(data, train={1}, test={2}, share=0.5, seed=1), "train")
    assert rows_of(divide_by_fold(data, train={1}, test={2}), "train") == list(range(80))


def test_a_square_around_the_tumour_is_shown_alone_also_at_the_edge(tmp_path: Path) -> None:
    data = open_data(write_cemri(tmp_path / "cemri", SLICES, noise=1))
    cropped = open_data(crop_tumours(data, tmp_path / "tumours"))
    assert [case.patient for case in cropped.cases] == [case.patient for case in data.cases]
    assert [cropped.classes[c.label] for c in cropped.cases] == [data.classes[c.label] for c in data.cases]
    top, left = 5 - (5.5 - 8), 30 - (31 - 8)  # the middle of the tumour is 5.5, 31: the square begins above the slice
    for case in cropped.cases:
        with Image.open(case.image) as picture:
            pixels = np.asarray(picture)
        assert pixels.shape == (16, 16)
        row, column = divmod(int(pixels.argmax()), 16)
        assert abs(row - top) <= 1
        assert abs(column - left) <= 1
