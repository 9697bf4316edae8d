"""CE-MRI, WBCAtt and the digits: fixtures in their layout, and the real files where they are."""

from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import savemat
from scipy.ndimage import affine_transform

from parsecaps.data.reading import read_image
from parsecaps.data.sources import affnist, open_data
from parsecaps.data.sources.wbcatt import CONCEPTS
from tests.data.sources.layouts import (
    SLICES,
    write_affnist,
    write_cemri,
    write_idx,
    write_mnist,
    write_slice,
    write_text,
    write_wbcatt,
)
from tests.messages import message, refused


def test_cemri(tmp_path: Path) -> None:
    root = write_cemri(tmp_path)
    data = open_data(root)
    assert (data.source, data.problems) == ("cemri", [])
    assert data.classes == ("meningioma", "glioma", "pituitary")
    assert [int(case.image.stem) for case in data.cases] == [1, 2, 3, 10]
    assert [case.patient for case in data.cases] == ["100360", "MR001", "MR001", "MR002"]
    assert [(case.label + 1, case.fold) for case in data.cases] == [(label, fold) for _, label, fold in SLICES.values()]
    assert all(case.mask == case.image for case in data.cases)
    message(*data.notes)


def test_cemri_lists_all_bad_slices(tmp_path: Path) -> None:
    root = write_cemri(tmp_path)
    write_slice(root / "4.mat", "MR009", 7)
    (root / "5.mat").write_bytes(b"not a file of MATLAB")
    write_slice(root / "6.mat", "", 1)
    with h5py.File(root / "7.mat", "w") as file:
        file["something"] = 1
    write_slice(root / "11.mat", "MR009", 1)
    data = open_data(root)
    assert [int(case.image.stem) for case in data.cases] == [1, 2, 3, 10]
    assert [Path(problem.file).name for problem in data.problems] == ["4.mat", "5.mat", "6.mat", "7.mat", "11.mat"]
    message(*data.problems)


def test_cemri_without_slices_or_folds(tmp_path: Path) -> None:
    root = write_cemri(tmp_path)
    for number in SLICES:
        (root / f"{number}.mat").unlink()
    with refused(FileNotFoundError):
        open_data(root)
    with h5py.File(root / "cvind.mat", "w") as file:
        file["other"] = 1
    with refused(ValueError):
        open_data(root)
    with refused(FileNotFoundError):
        open_data(tmp_path / "nowhere", "cemri")


def test_wbcatt(tmp_path: Path) -> None:
    data = open_data(write_wbcatt(tmp_path, granularity="no", nucleus_shape="segmented-bilobed"))
    assert (data.source, data.problems, len(data.concepts)) == ("wbcatt", [], 31)
    assert [(case.split, case.row, case.label) for case in data.cases] == [
        ("train", 2, 3),
        ("val", 2, 3),
        ("test", 2, 3),
    ]
    present = {concept for concept, value in zip(CONCEPTS, data.cases[0].concepts, strict=True) if value}
    assert present == {
        "cell_size=big",
        "cell_shape=round",
        "nucleus_shape=segmented-bilobed",
        "nuclear_cytoplasmic_ratio=low",
        "chromatin_density=densely",
        "cytoplasm_vacuole=yes",
        "cytoplasm_texture=clear",
        "cytoplasm_colour=light blue",
        "granule_type=small",
        "granule_colour=pink",
        "granularity=no",
    }
    assert len({case.patient for case in data.cases}) == 3


def test_wbcatt_lists_all_problems(tmp_path: Path) -> None:
    root = write_wbcatt(tmp_path, ("train", "val"))
    train, val = root / "pbc_attr_v1_train.csv", root / "pbc_attr_v1_val.csv"
    header, row = train.read_text(encoding="utf-8").splitlines()
    odd = row.replace("light blue", "green").replace("Monocyte", "Platelet").replace("MO_0.jpg", "MO_9.jpg")
    write_text(train, header, row, odd, row)
    write_text(val, header, row)
    data = open_data(root)
    assert len(data) == 1
    assert [p.row for p in data.problems] == [3, 3, 3, 4, 2]
    message(*data.problems)
    message(*data.notes)


def test_mnist(tmp_path: Path) -> None:
    data = open_data(write_mnist(tmp_path))
    assert (data.source, data.classes[3], len(data)) == ("mnist", "3", 10)
    assert [case.label for case in data.cases] == [0, 1, 2, 3, 4, 9, 8, 7, 6, 5]
    assert [(case.image.name[:4], case.frame, case.split) for case in data.cases[4:6]] == [
        ("trai", 4, "train"),
        ("t10k", 0, "test"),
    ]
    assert len({case.patient for case in data.cases}) == 10


def test_mnist_with_a_part_missing_or_broken(tmp_path: Path) -> None:
    root = write_mnist(tmp_path)
    (root / "train-images-idx3-ubyte.gz").unlink()
    data = open_data(root)
    assert {case.split for case in data.cases} == {"test"}
    message(*data.notes)
    write_idx(root / "t10k-labels-idx1-ubyte.gz", np.arange(4))
    with refused(ValueError):
        open_data(root)
    write_idx(root / "t10k-labels-idx1-ubyte.gz", np.array([1, 12]))
    with refused(ValueError):
        open_data(root)
    (root / "t10k-images-idx3-ubyte.gz").write_bytes(b"something else")
    write_idx(root / "t10k-labels-idx1-ubyte.gz", np.arange(4))
    with refused(ValueError):
        open_data(root)


def test_affnist_file_and_folder(tmp_path: Path) -> None:
    for number, labels in {2: [7, 2, 1], 10: [3, 2, 1], 1: [0, 2, 1]}.items():
        write_affnist(tmp_path / "test_batches" / f"{number}.mat", labels)
    data = open_data(tmp_path / "test_batches")
    assert (data.source, data.problems) == ("affnist", [])
    assert [case.label for case in data.cases] == [0, 2, 1, 7, 2, 1, 3, 2, 1]
    assert [case.frame for case in data.cases] == [0, 1, 2] * 3
    assert {case.split for case in data.cases} == {"test"}
    assert len({case.patient for case in data.cases}) == 3
    single = open_data(write_affnist(tmp_path / "training_and_validation.mat", [4, 5]))
    assert [(case.label, case.split) for case in single.cases] == [(4, "train"), (5, "train")]


def test_affnist_lists_all_bad_files(tmp_path: Path) -> None:
    write_affnist(tmp_path / "1.mat", [1])
    savemat(tmp_path / "2.mat", {"other": 1})
    savemat(tmp_path / "3.mat", {"affNISTdata": {"image": np.zeros((100, 1)), "label_int": [[1]]}})
    savemat(tmp_path / "4.mat", {"affNISTdata": {"image": np.zeros((1600, 1)), "label_int": [[11]]}})
    (tmp_path / "5.mat").write_bytes((tmp_path / "1.mat").read_bytes()[:150])
    data = open_data(tmp_path)
    assert [(case.image.name, case.split) for case in data.cases] == [("1.mat", None)]
    assert [Path(problem.file).name for problem in data.problems] == ["2.mat", "3.mat", "4.mat", "5.mat"]


def test_affnist_like_lists_versions_of_the_test_digits(tmp_path: Path) -> None:
    data = open_data(f"affnist-like:{write_mnist(tmp_path)}")
    assert (data.source, len(data)) == ("affnist-like", 5 * 32 + 5)
    assert "affNIST-like" in data.notes[0]
    assert [case.label for case in data.cases[:6]] == [9, 8, 7, 6, 5, 9]
    assert data.cases[7].patient == data.cases[2].patient == data.cases[157].patient
    assert len({case.name for case in data.cases}) == len(data)
    with pytest.raises(IndexError):
        data.cases[165]


def test_affnist_like_has_the_training_digits_unmoved(tmp_path: Path) -> None:
    root = write_mnist(tmp_path)
    data, plain = open_data(f"affnist-like:{root},per_digit=2"), open_data(root)
    still = [case for case in plain.cases if case.split == "train"]
    assert [case.split for case in data.cases] == ["test"] * 10 + ["train"] * 5
    assert [case.label for case in data.cases[10:]] == [case.label for case in still]
    assert len({case.patient for case in data.cases}) == 10
    assert data.draw is not None
    images = data.draw([0, 12])
    np.testing.assert_array_equal(images[0], data.draw([0])[0])
    expected = np.pad(read_image(still[2].image, still[2].frame).pixels, 6)
    np.testing.assert_array_equal(images[1], [expected] * 3)
    (root / "train-images-idx3-ubyte.gz").unlink()
    tested = open_data(f"affnist-like:{root},per_digit=2")
    assert len(tested) == 10
    assert any("no train cases" in note for note in tested.notes)


def test_affnist_like_image_depends_on_seed_and_index_only(tmp_path: Path) -> None:
    root = write_mnist(tmp_path)
    draw, few = open_data(f"affnist-like:{root}").draw, open_data(f"affnist-like:{root},per_digit=2").draw
    other = open_data(f"affnist-like:{root},seed=1").draw
    assert draw is not None
    assert few is not None
    assert other is not None
    images = draw(range(10))
    assert images.shape == (10, 3, 40, 40)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images[:, 0], images[:, 2])
    np.testing.assert_array_equal(draw([7])[0], images[7])
    np.testing.assert_array_equal(draw([9, 3]), images[[9, 3]])
    np.testing.assert_array_equal(few(range(10)), images)
    assert (other(range(10)) != images).any()
    assert (images[0] != images[5]).any()  # two versions of one digit
    assert draw([]).shape == (0, 3, 40, 40)


@pytest.mark.parametrize("option", ["per_digit=0", "per_digit=33", "seed=x", "zoom=2"])
def test_affnist_like_refuses_other_options(option: str, tmp_path: Path) -> None:
    with refused(ValueError):
        open_data(f"affnist-like:{write_mnist(tmp_path)},{option}")


@given(draws=st.lists(st.floats(0, 1, width=32, exclude_max=True), min_size=6, max_size=6))
def test_affnist_like_against_scipy_and_inside(draws: list[float]) -> None:
    """A larger canvas, drawn by another library, has the same image in its middle and nothing around it."""
    digit = np.zeros((28, 28))
    digit[4:24, 4:24] = 255
    digit[10:14, 4:20] = 80
    image, chance = torch.from_numpy(digit).to(torch.uint8)[None], torch.tensor([draws])
    drawn = affnist.change(image, chance)[0].numpy()
    matrix, start, centre = (value[0].double().numpy() for value in affnist.placement(image, chance))
    margin = 15
    inverse = np.linalg.inv(matrix)[::-1, ::-1]  # scipy counts y before x, and pixels from their centres
    offset = centre[::-1] - 0.5 - inverse @ (start[::-1] - 0.5 + margin)
    wide = affine_transform(digit, inverse, offset, (40 + 2 * margin,) * 2, order=1)
    inner = wide[margin:-margin, margin:-margin]
    np.testing.assert_allclose(drawn, inner, atol=1)
    assert abs(wide.sum() - inner.sum()) < 1e-3
    angle, scale = np.arctan2(matrix[1, 0], matrix[0, 0]), np.linalg.norm(matrix[:, 0])
    assert abs(np.degrees(angle)) <= 20.001
    assert 0.799 <= scale <= 1.201
    assert 0.639 <= np.linalg.det(matrix) <= 1.441


def test_the_real_cemri(data_root: Path) -> None:
    data = open_data(data_root / "cemri")
    assert (len(data), data.problems) == (1787, [])
    assert Counter(case.fold for case in data.cases) == {1: 570, 2: 655, 3: 562}
    assert Counter(data.classes[case.label] for case in data.cases) == {
        "meningioma": 425,
        "glioma": 800,
        "pituitary": 562,
    }
    assert len({case.patient for case in data.cases}) == 129
    message(data.notes[0])
    known = {case.image.name: (case.label, case.patient, case.fold) for case in data.cases}
    assert known["1.mat"] == (0, "100360", 3)
    assert known["3063.mat"] == (0, "95969", 1)


def test_the_real_cemri_agrees_with_its_other_reader(data_root: Path, tmp_path: Path) -> None:
    for number in ("1", "3063", "1014", "1500"):
        source = data_root / "cemri" / f"{number}.mat"
        if source.is_file():
            (tmp_path / source.name).symlink_to(source)
    (tmp_path / "cvind.mat").symlink_to(data_root / "cemri" / "cvind.mat")
    data = open_data(tmp_path)
    assert len(data) > 1
    with h5py.File(data_root / "cemri" / "cvind.mat") as file:
        folds = np.asarray(file["cvind"]).ravel()
    for case in data.cases:
        with h5py.File(case.image) as file:
            label, letters = np.asarray(file["cjdata"]["label"]).item(), np.asarray(file["cjdata"]["PID"]).ravel()
        assert case.label == int(label) - 1
        assert case.fold == folds[int(case.image.stem) - 1]
        assert "".join(map(chr, letters)).startswith(case.patient)


def test_the_real_wbcatt(data_root: Path) -> None:
    data = open_data(data_root / "wbcatt")
    assert data.problems == []
    assert Counter(case.split for case in data.cases) == {"train": 6169, "val": 1030}
    counts = Counter((case.split, data.classes[case.label]) for case in data.cases)
    assert [counts["train", name] for name in data.classes] == [744, 1876, 736, 829, 1984]
    assert [counts["val", name] for name in data.classes] == [125, 314, 111, 146, 334]
    table = np.array([case.concepts for case in data.cases if case.split == "train"])
    present = dict(zip(data.concepts, table.sum(0).astype(int).tolist(), strict=True))
    assert present["nucleus_shape=segmented-bilobed"] == 1899
    assert present["cytoplasm_colour=purple blue"] == 644
    assert present["granule_colour=nil"] == 1564
    assert (table.sum(1) == 11).all()
    first = data.cases[0]
    assert (first.image.name, first.row, data.classes[first.label]) == ("BNE_7323.jpg", 2, "Neutrophil")


def test_the_real_mnist(data_root: Path) -> None:
    data = open_data(data_root / "mnist")
    assert Counter(case.split for case in data.cases) == {"train": 60_000, "test": 10_000}
    labels = Counter(case.label for case in data.cases if case.split == "test")
    assert [labels[digit] for digit in range(10)] == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    assert data.cases[0].label == 5
    like = open_data(f"affnist-like:{data_root / 'mnist'}")
    assert len(like) == 380_000
    assert like.cases[319_999].label == data.cases[-1].label
    assert like.draw is not None
    ink = like.draw(range(0, 320_000, 997))[:, 0]
    assert (ink.max(axis=(1, 2)) > 100).all()
