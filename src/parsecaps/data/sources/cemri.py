"""CE-MRI brain tumours (Cheng, figshare 1512427): one MATLAB 7.3 file per slice, with the author's five folds."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.cases import Case, DataSet, Problem, Source
from parsecaps.data.raw_image import DefectError, Format, RawImage, check_size, pick_frame

if TYPE_CHECKING:
    import h5py

CLASSES = ("meningioma", "glioma", "pituitary")
FOLD_FILE = "cvind.mat"
_SUFFIXED = re.compile(r"^(MR\d+)[A-Z]$")
_HDF5 = b"\x89HDF\r\n\x1a\n"


def recognise(path: Path) -> bool:
    """Whether the file of folds is there."""
    return (path / FOLD_FILE).is_file()


def read(path: str) -> DataSet:
    """List the slices; only the label and the patient are read from each file, which also holds the tumour mask."""
    root = Path(path)
    folds = read_folds(root)
    cases, problems, ids = [], [], set()
    for file in slice_files(root):
        number = int(file.stem)
        try:
            if not 1 <= number <= len(folds):
                raise ValueError(f"{file} is not among the {len(folds)} slices of {FOLD_FILE}; use the original names")
            with open_mat(file) as opened:
                label, patient_id = slice_label(opened, file), slice_patient_id(opened)
            if not patient_id.strip():
                raise ValueError(f"{file} has no patient; download it again")
        except (KeyError, TypeError, ValueError) as error:
            known = isinstance(error, ValueError) and str(error).startswith(f"{file} ")
            reason = str(error).removeprefix(f"{file} ") if known else "is not a slice of CE-MRI; download it again"
            problems.append(Problem(str(file), None, reason))
            continue
        ids.add(patient_id)
        fold = int(folds[number - 1])
        cases.append(Case(file, label, base_patient(patient_id), fold=fold, mask=file))
    patients = {case.patient for case in cases}
    note = f"{len(ids)} patient ids are {len(patients)} patients: ids that differ only in a last letter are one"
    return DataSet("cemri", root, CLASSES, (), cases, problems, [note])


def base_patient(patient_id: str) -> str:
    """The patient behind an id: some have several, which differ in a letter.

    >>> base_patient("MR040240B"), base_patient("100360")
    ('MR040240', '100360')
    """
    match = _SUFFIXED.match(patient_id)
    return match.group(1) if match else patient_id


def open_mat(path: Path) -> "h5py.File":
    """Open a MATLAB 7.3 file for reading."""
    import h5py  # optional

    try:
        return h5py.File(path)
    except OSError:
        raise ValueError(f"{path} is not a MATLAB 7.3 file; download it again") from None


def read_folds(folder: Path) -> np.ndarray:
    """The author's fold, from 1 to 5, of slice 1, 2, ...: (3064,) int64."""
    path = folder / FOLD_FILE
    if not path.is_file():
        raise FileNotFoundError(f"{path} is missing; give the folder with the .mat slices and {FOLD_FILE}")
    with open_mat(path) as file:
        if "cvind" not in file:
            raise ValueError(f"{path} has no variable cvind; download it again")
        return np.asarray(file["cvind"]).ravel().astype(np.int64)


def slice_files(folder: Path) -> list[Path]:
    """The slices of a folder, in the order of their numbers."""
    paths = sorted((p for p in folder.glob("*.mat") if p.stem.isdecimal()), key=lambda p: int(p.stem))
    if not paths:
        raise FileNotFoundError(f"{folder} has no slices; give the folder with 1.mat, 2.mat, ...")
    return paths


def slice_label(file: "h5py.File", path: Path) -> int:
    """The label of an open slice, an index into `CLASSES`."""
    label = int(np.asarray(file["cjdata"]["label"]).item())
    if not 1 <= label <= len(CLASSES):
        raise ValueError(f"{path} has label {label}; only 1 to {len(CLASSES)} are known, remove the file")
    return label - 1


def slice_patient_id(file: "h5py.File") -> str:
    """The id of the patient of an open slice, as it is written there."""
    return "".join(map(chr, np.asarray(file["cjdata"]["PID"]).ravel()))


def _read_slice(path: Path, frame: int | None) -> RawImage:
    pick_frame(frame, 1)
    return RawImage(_array(path, "image"), None)


def _size(path: Path) -> tuple[int, int]:
    import h5py

    with h5py.File(path) as file:
        width, height = _dataset(file, "image").shape
    return height, width


def _patient(path: Path) -> str:
    import h5py

    with h5py.File(path) as file:
        return base_patient(slice_patient_id(file)) if "cjdata/PID" in file else ""


def _array(path: Path, name: str) -> NDArray[Any]:
    import h5py

    with h5py.File(path) as file:
        return np.asarray(_dataset(file, name)).T  # stored transposed


def _dataset(file: "h5py.File", name: str) -> Any:
    import h5py

    dataset = file.get(f"cjdata/{name}")
    if not isinstance(dataset, h5py.Dataset):
        raise DefectError(f"has no cjdata/{name}; of the HDF5 files only those of CE-MRI are known")
    if dataset.ndim != 2 or dataset.dtype.kind not in "iuf":
        raise DefectError(
            f"has a cjdata/{name} of {dataset.ndim} axes and type {dataset.dtype}; give 2 axes of numbers"
        )
    check_size(dataset.shape[1], dataset.shape[0])
    return dataset


FORMAT = Format(
    name="CE-MRI .mat",
    suffixes=(".mat",),
    recognise=lambda head: _HDF5 in (head[:8], head[512:520]),  # MATLAB writes 512 bytes of its own first
    read=_read_slice,
    count=lambda path: 1,
    size=_size,
    patient=_patient,
    read_mask=lambda path: _array(path, "tumorMask"),
)
SOURCE = Source(
    name="cemri",
    summary="CE-MRI brain tumours (figshare 1512427)",
    layout=f"a folder with 1.mat, 2.mat, ... and {FOLD_FILE}",
    recognise=recognise,
    read=read,
)
