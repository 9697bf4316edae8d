"""CE-MRI brain tumours (Cheng, figshare 1512427): one MATLAB 7.3 file per slice, with the author's five folds."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parsecaps.data.cases import Case, DataSet, Problem
from parsecaps.data.raw_image import DefectError, Format, RawImage, check_size, pick_frame
from parsecaps.data.reader_pool import RefusedError, call, call_or_name

if TYPE_CHECKING:
    import h5py

CLASSES = ("meningioma", "glioma", "pituitary")
FOLD_FILE = "cvind.mat"
_MOST_SLICES = 10**6
_LONGEST_ID = 1000
_NOT_MATLAB = "is not a MATLAB 7.3 file; download it again"
_HDF5 = b"\x89HDF\r\n\x1a\n"


def recognise(path: Path) -> bool:
    """Whether the file of folds is there."""
    return (path / FOLD_FILE).is_file()


def read(path: str) -> DataSet:
    """List the slices; only the label and the patient are read from each file, which also holds the tumour mask."""
    root = Path(path)
    if not recognise(root):
        raise FileNotFoundError(f"{root / FOLD_FILE} is missing; give the folder with the .mat slices and {FOLD_FILE}")
    folds = np.asarray(call_or_name(fold_values, root / FOLD_FILE, _NOT_MATLAB)).ravel()  # of slice 1, 2, ...
    slices = sorted((file for file in root.glob("*.mat") if file.stem.isdecimal()), key=lambda file: int(file.stem))
    if not slices:
        raise FileNotFoundError(f"{root} has no slices; give the folder with 1.mat, 2.mat, ...")
    cases, problems, ids = [], [], set()
    for file in slices:
        number = int(file.stem)
        if not 1 <= number <= len(folds):
            reason = f"is not among the {len(folds)} slices of {FOLD_FILE}; use the original names"
            problems.append(Problem(str(file), None, reason))
            continue
        try:
            label, patient_id = call(read_annotation, file)
        except RefusedError as refused:
            reason = "is not a slice of CE-MRI; download it again" if refused.damaged else str(refused)
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
    return re.sub(r"^(MR\d+)[A-Z]$", r"\1", patient_id)


def fold_values(path: Path) -> NDArray[Any]:
    """The author's fold of each slice, from 1 to 5, as the file has them."""
    with _open(path) as file:
        return _values(file, "cvind", _MOST_SLICES)


def read_annotation(path: Path) -> tuple[int, str]:
    """The label of a slice, an index into `CLASSES`, and the id of its patient as it is written there."""
    with _open(path) as file:
        label = int(_values(file, "cjdata/label", 1).item())
        patient = _patient_id(file)
    if not 1 <= label <= len(CLASSES):
        raise DefectError(f"has label {label}; only 1 to {len(CLASSES)} are known, remove the file")
    if not patient.strip():
        raise DefectError("has no patient; download it again")
    return label - 1, patient


def _size(path: Path) -> tuple[int, int]:
    with _open(path) as file:
        width, height = _picture(file, "image").shape
    return height, width


def _patient(path: Path) -> str:
    with _open(path) as file:
        return base_patient(_patient_id(file)) if "cjdata/PID" in file else ""


def _patient_id(file: "h5py.File") -> str:
    return "".join(map(chr, _values(file, "cjdata/PID", _LONGEST_ID).ravel()))


def _plane(path: Path, name: str, frame: int | None = None) -> NDArray[Any]:
    pick_frame(frame, 1)
    with _open(path) as file:
        return np.asarray(_picture(file, name)).T  # stored transposed


def _picture(file: "h5py.File", name: str) -> "h5py.Dataset":
    dataset = _dataset(file, f"cjdata/{name}")
    if dataset.ndim != 2 or dataset.dtype.kind not in "iuf":
        raise DefectError(f"has a cjdata/{name} of {dataset.ndim} axes and type {dataset.dtype}; give 2, of numbers")
    check_size(dataset.shape[1], dataset.shape[0])
    return dataset


def _values(file: "h5py.File", name: str, most: int) -> NDArray[Any]:
    dataset = _dataset(file, name)
    if dataset.dtype.kind not in "iuf" or (dataset.size or 0) > most:
        raise DefectError(f"has a {name} of {dataset.size} values of type {dataset.dtype}; download it again")
    return np.asarray(dataset)


def _dataset(file: "h5py.File", name: str) -> "h5py.Dataset":
    """A dataset whose values lie in the file itself: HDF5 can fetch them from any file of the machine."""
    import h5py

    place = ""
    for part in name.split("/"):
        place = f"{place}/{part}".lstrip("/")
        if isinstance(file.get(place, getlink=True), h5py.ExternalLink):
            raise DefectError(f"takes {place} from another file; give a file that holds its own data")
    dataset = file.get(name)
    if not isinstance(dataset, h5py.Dataset):
        raise DefectError(f"has no {name}; of the HDF5 files only those of CE-MRI are known")
    if dataset.external or dataset.is_virtual:
        raise DefectError(f"takes the values of {name} from another file; give a file that holds its own data")
    return dataset


def _open(path: Path) -> "h5py.File":
    import h5py

    try:
        return h5py.File(path)
    except OSError:
        raise DefectError(_NOT_MATLAB) from None


FORMAT = Format(
    name="CE-MRI .mat",
    suffixes=(".mat",),
    recognise=lambda head: _HDF5 in (head[:8], head[512:520]),  # MATLAB writes 512 bytes of its own first
    read=lambda path, frame: RawImage(_plane(path, "image", frame), None),
    count=lambda path: 1,
    size=_size,
    patient=_patient,
    read_mask=lambda path: _plane(path, "tumorMask"),
)
