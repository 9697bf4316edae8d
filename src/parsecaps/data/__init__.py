"""From files to tensors: the data sets, how they are split and checked, and what is done to a batch.

>>> data = open_data("phantom:n=40,size=32")
>>> data.classes, len(rows_of(hold_out(data), "train"))
(('nevus', 'melanoma'), 26)
"""

from parsecaps.data.augment import Augmentation
from parsecaps.data.batches import Batches
from parsecaps.data.cache import BadDataError, PreparedImages, prepare_all, prepared_masks
from parsecaps.data.cases import UNKNOWN, Case, DataSet, Problem, Source
from parsecaps.data.check import DataCheck, check_data
from parsecaps.data.leaks import Leak, find_leaks, move_to_one_side
from parsecaps.data.preparation import Preparation
from parsecaps.data.reading import RawImage, read_image, read_mask
from parsecaps.data.sources import SOURCES, open_data
from parsecaps.data.splits import Division, by_fold, hold_out, k_folds, official, read_split, rows_of, write_split

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
