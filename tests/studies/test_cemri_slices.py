"""CE-MRI: the MATLAB layout, patients with several ids, and splits that keep a patient on one side."""

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from studies.cemri_slices import base_patient, read_slices, split_by_fold

# patient id, label (1 to 3) and fold of each slice; MR001 has slices in folds 1 and 3 under two ids
SLICES = [("100360", 1, 1), ("MR001", 2, 1), ("MR001B", 2, 3), ("MR002", 3, 2), ("MR003", 3, 3)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, (patient, label, _) in enumerate(SLICES, 1):
        pixels = np.zeros((40, 40), np.int16)
        pixels[5, 30] = 1000 * number  # row 5, column 30 of the picture
        with h5py.File(tmp_path / f"{number}.mat", "w") as file:
            data = file.create_group("cjdata")
            data["image"] = pixels.T
            data["label"] = np.array([[float(label)]])
            data["PID"] = np.array([[ord(c)] for c in patient], np.uint16)
    with h5py.File(tmp_path / "cvind.mat", "w") as file:
        file["cvind"] = np.array([[float(fold) for *_, fold in SLICES]])
    return tmp_path


def test_reads_pixels_upright_and_scaled(folder: Path) -> None:
    slices = read_slices(folder, 40)
    assert slices.image.shape == (5, 1, 40, 40)
    assert slices.image.dtype == torch.float32
    assert slices.image.amin() >= 0
    assert slices.image.amax() <= 1
    for image in slices.image:
        assert divmod(int(image.argmax()), 40) == (5, 30)
    assert slices.label.tolist() == [0, 1, 1, 2, 2]
    assert slices.fold.tolist() == [1, 1, 3, 2, 3]


def test_resizes(folder: Path) -> None:
    assert read_slices(folder, 28).image.shape == (5, 1, 28, 28)


def test_ids_of_one_patient_are_merged(folder: Path) -> None:
    assert read_slices(folder, 28).patient == ["100360", "MR001", "MR001", "MR002", "MR003"]
    assert base_patient("MR040240C") == "MR040240"


def test_a_tested_patient_is_not_trained_on(folder: Path) -> None:
    train, test = split_by_fold(read_slices(folder, 28), train={1, 2}, test={3})
    assert train.tolist() == [0, 3]
    assert test.tolist() == [2, 4]
    train, test = split_by_fold(read_slices(folder, 28), train={1, 2}, test={3}, as_published=True)
    assert train.tolist() == [0, 1, 3]
    assert test.tolist() == [2, 4]


def test_missing_folds_and_folders(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"folds \[4\] and \[3\] are not both here; found \[1, 2, 3\]"):
        split_by_fold(read_slices(folder, 28), train={4}, test={3})
    with pytest.raises(FileNotFoundError, match=r"cvind\.mat is missing; give the folder"):
        read_slices(tmp_path / "nowhere", 28)


def test_the_real_files(data_root: Path) -> None:
    slices = read_slices(data_root / "cemri", 28)
    train, test = split_by_fold(slices, train={1, 2}, test={3})
    assert torch.bincount(slices.fold, minlength=4).tolist() == [0, 570, 655, 562]
    assert len(test) == 562
    assert len(train) == 1125  # of 1,225: five patients of fold 3 have slices in folds 1 and 2
    assert not {slices.patient[i] for i in train} & {slices.patient[i] for i in test}


def test_a_square_around_the_tumour_is_shown_alone_also_at_the_edge(folder: Path) -> None:
    for number in range(1, len(SLICES) + 1):
        with h5py.File(folder / f"{number}.mat", "a") as file:
            mask = np.zeros((40, 40), np.uint8)
            mask[3:8, 26:36] = 1  # its middle is row 5, column 30; a square of 16 around it begins above the slice
            file["cjdata"]["tumorMask"] = mask.T
    slices = read_slices(folder, 16, around_tumour=True)
    assert slices.image.shape == (5, 1, 16, 16)
    top, left = 5 - (5.5 - 8), 30 - (31 - 8)
    for image in slices.image:
        row, column = divmod(int(image.argmax()), 16)
        assert abs(row - top) <= 1
        assert abs(column - left) <= 1


def test_the_real_tumours(data_root: Path) -> None:
    whole, around = (read_slices(data_root / "cemri", 28, around_tumour=shown) for shown in (False, True))
    assert whole.patient == around.patient
    assert torch.equal(whole.label, around.label)
    brighter = (around.image.mean((1, 2, 3)) > whole.image.mean((1, 2, 3))).float().mean()
    assert brighter > 0.9  # a tumour takes up contrast agent, and less of the dark rim is to be seen
