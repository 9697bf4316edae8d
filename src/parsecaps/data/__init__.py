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
    from parsecaps.data.augment import Augmentation
    from parsecaps.data.batches import Batches
    from parsecaps.data.cache import BadDataError, PreparedImages, prepare_all, prepared_masks
    from parsecaps.data.cases import UNKNOWN, Case, DataSet, Problem, Source
    from parsecaps.data.check import DataCheck, check_data
    from parsecaps.data.leaks import Leak, find_leaks, move_to_one_side
    from parsecaps.data.preparation import Preparation
    from parsecaps.data.reading import RawImage, read_image, read_mask
    from parsecaps.data.sources import SOURCES, open_data
    from parsecaps.data.split_file import Division, read_split, write_split
    from parsecaps.data.splits import by_fold, hold_out, k_folds, official, rows_of

__all__ = [
    "SOURCES",
    "UNKNOWN",
    "Augmentation",
    "BadDataError",
    "Batches",
    "Case",
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
    "Augmentation": "augment",
    "BadDataError": "cache",
    "Batches": "batches",
    "Case": "cases",
    "DataCheck": "check",
    "DataSet": "cases",
    "Division": "split_file",
    "Leak": "leaks",
    "Preparation": "preparation",
    "PreparedImages": "cache",
    "Problem": "cases",
    "RawImage": "reading",
    "SOURCES": "sources",
    "Source": "cases",
    "UNKNOWN": "cases",
    "by_fold": "splits",
    "check_data": "check",
    "find_leaks": "leaks",
    "hold_out": "splits",
    "k_folds": "splits",
    "move_to_one_side": "leaks",
    "official": "splits",
    "open_data": "sources",
    "prepare_all": "cache",
    "prepared_masks": "cache",
    "read_image": "reading",
    "read_mask": "reading",
    "read_split": "split_file",
    "rows_of": "splits",
    "write_split": "split_file",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
