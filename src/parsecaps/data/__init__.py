"""From files to tensors: the data sets, how they are split and checked, and what is done to a batch.

>>> from parsecaps.data import hold_out, open_data, rows_of
>>> data = open_data("phantom:n=40,size=32")
>>> data.classes, len(rows_of(hold_out(data), "train"))
(('nevus', 'melanoma'), 26)

The names are imported when they are first used: the processes that read files start without PyTorch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsecaps.data.batches import Augmentation, Batches
    from parsecaps.data.cache import BadDataError, PreparedImages, prepare_all
    from parsecaps.data.case_set import CaseSet, prepared_masks
    from parsecaps.data.cases import UNKNOWN, Case, DataSet, Division, Problem, Source
    from parsecaps.data.check import DataCheck, check_data
    from parsecaps.data.leaks import Leak, find_leaks, move_to_one_side
    from parsecaps.data.preparation import Preparation
    from parsecaps.data.raw_image import RawImage
    from parsecaps.data.reading import read_image, read_mask
    from parsecaps.data.sources import SOURCES, open_data
    from parsecaps.data.splits import by_fold, hold_out, k_folds, official, read_split, rows_of, write_split

__all__ = [
    "SOURCES",
    "UNKNOWN",
    "Augmentation",
    "BadDataError",
    "Batches",
    "Case",
    "CaseSet",
    "DataCheck",
    "DataSet",
    "Division",
    "Leak",
    "Preparation",
    "PreparedImages",
    "Problem",
    "RawImage",
    "Source",
    "by_fold",
    "check_data",
    "find_leaks",
    "hold_out",
    "k_folds",
    "move_to_one_side",
    "official",
    "open_data",
    "prepare_all",
    "prepared_masks",
    "read_image",
    "read_mask",
    "read_split",
    "rows_of",
    "write_split",
]

_MODULES = {
    "batches": ("Augmentation", "Batches"),
    "cache": ("BadDataError", "PreparedImages", "prepare_all"),
    "case_set": ("CaseSet", "prepared_masks"),
    "cases": ("UNKNOWN", "Case", "DataSet", "Division", "Problem", "Source"),
    "check": ("DataCheck", "check_data"),
    "leaks": ("Leak", "find_leaks", "move_to_one_side"),
    "preparation": ("Preparation",),
    "raw_image": ("RawImage",),
    "reading": ("read_image", "read_mask"),
    "sources": ("SOURCES", "open_data"),
    "splits": ("by_fold", "hold_out", "k_folds", "official", "read_split", "rows_of", "write_split"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
