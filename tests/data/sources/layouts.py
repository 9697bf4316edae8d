"""Small data sets in the true layout of each source."""

import gzip
import struct
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import openpyxl
from PIL import Image
from scipy.io import savemat

from parsecaps.data.sources.wbcatt import ATTRIBUTES


def write_image(path: Path, size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (90, 60, 40)).save(path)


def write_text(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


# CE-MRI ------------------------------------------------------------------------------------------

SLICES = {1: ("100360", 1, 1), 2: ("MR001", 2, 1), 3: ("MR001B", 2, 3), 10: ("MR002", 3, 2)}  # id, label, fold


def write_slice(path: Path, patient: str, label: float) -> None:
    with h5py.File(path, "w") as file:
        data = file.create_group("cjdata")
        data["image"] = np.zeros((8, 8), np.int16)
        data["tumorMask"] = np.zeros((8, 8), np.uint8)
        data["label"] = np.array([[label]], float)
        data["PID"] = np.array([[ord(c)] for c in patient], np.uint16)


def write_cemri(root: Path) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    folds = np.zeros((1, 10))
    for number, (patient, label, fold) in SLICES.items():
        write_slice(root / f"{number}.mat", patient, label)
        folds[0, number - 1] = fold
    with h5py.File(root / "cvind.mat", "w") as file:
        file["cvind"] = folds
    return root


# PH2: name, code of the diagnosis, pigment network, dots, streaks, veil ---------------------------

PH2_ROWS = [
    ("IMD003", 0, "T", "A", "A", "A"),
    ("IMD009", 1, "AT", "T", "A", "A"),
    ("IMD063", 2, "AT", "AT", "P", "P"),
]
PH2_HEADER = [
    "Image Name",
    "Histological Diagnosis",
    "Common Nevus",
    "Atypical Nevus",
    "Melanoma",
    "Asymmetry\n(0/1/2)",
    "Pigment Network\n(AT/T)",
    "Dots/Globules\n(A/AT/T)",
    "Streaks\n(A/P)",
    "Regression Areas\n(A/P)",
    "Blue-Whitish Veil\n(A/P)",
    "White",
    "Red",
    "Light-Brown",
    "Dark-Brown",
    "Blue-Gray",
    "Black",
]


def write_ph2_images(root: Path, names: Sequence[str]) -> None:
    for name in names:
        folder = root / "PH2 Dataset images" / name
        write_image(folder / f"{name}_Dermoscopic_Image" / f"{name}.bmp")
        write_image(folder / f"{name}_lesion" / f"{name}_lesion.bmp")
        write_image(folder / f"{name}_roi" / f"{name}_R1_Label4.bmp")


def write_ph2_xlsx(root: Path, rows: Sequence[tuple[str, int, str, str, str, str]] = PH2_ROWS) -> Path:
    write_ph2_images(root, [row[0] for row in rows])
    book = openpyxl.Workbook()
    sheet = book.active
    for legend in ("PH2 Dataset", None, "Legend", "A - Absent", "AT - Atypical", "P - Present", "T - Typical"):
        sheet.append([legend])
    for _ in range(8, 13):
        sheet.append([])
    for column, text in enumerate(PH2_HEADER, 1):
        sheet.cell(13, column, text)
    for place, (name, code, network, dots, streaks, veil) in enumerate(rows, 14):
        marks = ["X" if code == c else None for c in range(3)]
        cells = [name, None, *marks, 0, network, dots, streaks, "A", veil, None, None, "X", None, None, None]
        for column, value in enumerate(cells, 1):
            sheet.cell(place, column, value)
    book.save(root / "PH2_dataset.xlsx")
    return root


def write_ph2_txt(root: Path, rows: Sequence[tuple[str, int, str, str, str, str]] = PH2_ROWS) -> Path:
    write_ph2_images(root, [row[0] for row in rows])
    header = (
        "||   Name || Histological Diagnosis || Clinical Diagnosis || Asymmetry | Pigment Network | Dots/Globules "
        "| Streaks | Regression Areas | Blue-Whitish Veil ||           Colors ||"
    )
    lines = [
        f"|| {name} ||                        ||                  {code} ||         0 |               {network} |"
        f"             {dots} |       {streaks} |                A |                 {veil} ||             3  4 ||"
        for name, code, network, dots, streaks, veil in rows
    ]
    legend = ["", "-" * 40, "Legends:", "Clinical Diagnosis:", "  0 - Common Nevus", "  2 - Melanoma", "A - Absent"]
    write_text(root / "PH2_dataset.txt", header, *lines, *legend)
    return root


# Derm7pt: diagnosis, pigment network, streaks, dots, veil, path in the table, path on disk ---------

DERM7PT_ROWS = [
    ("clark nevus", "typical", "absent", "regular", "absent", "NEL/Nel026.jpg", "NEL/NEL026.JPG"),
    ("melanoma (in situ)", "atypical", "irregular", "irregular", "present", "Aal/aal012.jpg", "AAL/aal012.jpg"),
    ("basal cell carcinoma", "absent", "absent", "absent", "absent", "FDL/fdl001.jpg", "FDL/fdl001.jpg"),
    ("melanoma metastasis", "absent", "absent", "absent", "present", "FDL/fdl002.jpg", "FDL/fdl002.jpg"),
    ("blue nevus", "absent", "regular", "absent", "present", "FDL/fdl003.jpg", "FDL/fdl003.jpg"),
]
DERM7PT_INDEXES = {"train": [0, 2], "valid": [4], "test": [1, 3]}


def write_derm7pt(root: Path) -> Path:
    header = (
        "case_num,diagnosis,seven_point_score,pigment_network,streaks,pigmentation,regression_structures,"
        "dots_and_globules,blue_whitish_veil,vascular_structures,level_of_diagnostic_difficulty,elevation,location,"
        "sex,management,clinic,derm,case_id,notes"
    )
    lines = []
    for number, (diagnosis, network, streaks, dots, veil, written, disk) in enumerate(DERM7PT_ROWS, 1):
        lines.append(
            f"{number},{diagnosis},1,{network},{streaks},absent,absent,{dots},{veil},absent,low,flat,back,female,"
            f'excision,Clin/c{number}.jpg,{written},,"seen once, then lost"'
        )
        write_image(root / "images" / disk)
    write_text(root / "meta" / "meta.csv", header, *lines)
    for name, indexes in DERM7PT_INDEXES.items():
        write_text(root / "meta" / f"{name}_indexes.csv", "indexes", *map(str, indexes))
    return root


# WBCAtt --------------------------------------------------------------------------------------------


def write_wbcatt(root: Path, names: Sequence[str] = ("train", "val", "test"), **changed: str) -> Path:
    """One row for each table, with the first value of each attribute unless another is given."""
    values = {attribute: known[0] for attribute, known in ATTRIBUTES.items()} | changed
    for place, name in enumerate(names):
        image = f"PBC_dataset_normal_DIB/monocyte/MO_{place}.jpg"
        write_image(root / image)
        header = ",".join(["img_name", "label", *ATTRIBUTES, "path"])
        row = ",".join([f"MO_{place}.jpg", "Monocyte", *(values[a] for a in ATTRIBUTES), image])
        write_text(root / f"pbc_attr_v1_{name}.csv", header, row)
    return root


# Digits --------------------------------------------------------------------------------------------


def write_idx(path: Path, values: np.ndarray) -> None:
    header = struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape)
    path.write_bytes(gzip.compress(header + values.astype(np.uint8).tobytes(), mtime=0))


def write_mnist(root: Path, num: int = 5) -> Path:
    """Digit i is a block of ink of 20 x 20, the largest there is, with a pattern of its own."""
    root.mkdir(parents=True, exist_ok=True)
    for name, labels in (("train", np.arange(num) % 10), ("t10k", 9 - np.arange(num) % 10)):
        images = np.zeros((num, 28, 28))
        images[:, 4:24, 4:24] = np.random.default_rng(len(name)).integers(60, 256, (num, 20, 20))
        write_idx(root / f"{name}-images-idx3-ubyte.gz", images)
        write_idx(root / f"{name}-labels-idx1-ubyte.gz", labels)
    return root


def write_affnist(path: Path, labels: Sequence[int]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {
        "image": np.zeros((1600, len(labels)), np.uint8),
        "label_int": np.array([labels], np.uint8),
        "label_one_of_n": np.eye(10, dtype=np.uint8)[:, list(labels)],
    }
    savemat(path, {"affNISTdata": data}, do_compression=True)
    return path
