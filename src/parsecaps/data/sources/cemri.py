"""CE-MRI brain tumours: one MATLAB 7.3 file per slice, with the author's five folds."""

from pathlib import Path

from parsecaps.data.cases import Case, DataSet, Problem
from parsecaps.data.cemri_format import (
    CLASSES,
    FOLD_FILE,
    base_patient,
    open_mat,
    read_folds,
    slice_files,
    slice_label,
    slice_patient_id,
)
from parsecaps.data.sources.source import Source


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


SOURCE = Source(
    name="cemri",
    summary="CE-MRI brain tumours (figshare 1512427)",
    layout=f"a folder with 1.mat, 2.mat, ... and {FOLD_FILE}",
    recognise=recognise,
    read=read,
)
