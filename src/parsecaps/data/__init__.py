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
    from parsecaps.data.cache import prepare_all
    from parsecaps.data.case_set import CaseSet
    from parsecaps.data.cases import Case, DataSet
    from parsecaps.data.check import check_data
    from parsecaps.data.preparation import Preparation
    from parsecaps.data.sources import open_data
    from parsecaps.data.splits import hold_out, rows_of

__all__ = ["Case", "CaseSet", "DataSet", "Preparation", "check_data", "hold_out", "open_data", "prepare_all", "rows_of"]

_NAMES = {
    "cache": "prepare_all",
    "case_set": "CaseSet",
    "cases": "Case DataSet",
    "check": "check_data",
    "preparation": "Preparation",
    "sources": "open_data",
    "splits": "hold_out rows_of",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
