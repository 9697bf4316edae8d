"""Who tests in which fold of a cross-validation, and which division a run was asked for."""

from parsecaps.config import DataSection
from parsecaps.data.cases import DataSet, Problem
from parsecaps.data.splits import Division, by_fold, divide, k_folds


def divide_data(section: DataSection, data: DataSet) -> tuple[Division, list[Problem]]:
    """The division of one run: that of its fold, or the one that `data.splits.divide` makes of the other settings."""
    if section.folds:
        if section.fold is None:
            raise ValueError(
                f"data.folds is {section.folds}, which takes several runs; use --folds or cross_validate, "
                "or choose one of them with data.fold"
            )
        divisions, _ = fold_divisions(section, data)
        if section.fold > len(divisions):
            raise ValueError(f"data.fold is {section.fold}, but there are {len(divisions)} folds; give 1 or more")
        return divisions[section.fold - 1], []
    if section.fold is not None:
        raise ValueError(f"data.fold is {section.fold} without data.folds; give both, or data.test_fold")
    return divide(
        data,
        file=section.split,
        test_fold=section.test_fold,
        test_part=section.test_part,
        val=section.val,
        test=section.test,
        seed=section.seed,
    )


def fold_divisions(section: DataSection, data: DataSet) -> tuple[list[Division], str]:
    """A division for each fold, and whose folds they are: the author's where there are as many, else dealt by patient.

    Each patient is tested in one of them; a share `val` of the others chooses, the rest trains.
    """
    if section.split is not None or section.test_fold or section.test_part:
        raise ValueError("data.folds tests everybody once; leave out data.split, data.test_fold and data.test_part")
    authors = sorted({case.fold for case in data.cases if case.fold is not None})
    if section.folds == len(authors) > 1 and all(case.fold is not None for case in data.cases):
        divisions = [by_fold(data, test={fold}, val=section.val, seed=section.seed) for fold in authors]
        return divisions, "the author's folds"
    whose = f"dealt by patient with seed {section.seed}"
    if authors:
        whose += f"; the author's {len(authors)} are not used"
    if any(case.split is not None for case in data.cases):
        whose += "; the official parts are not used"
    return k_folds(data, section.folds, val=section.val, seed=section.seed), whose
