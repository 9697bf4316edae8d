"""Every table and figure of the paper by one command, on equal terms, beside the published figures.

The names are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsecaps.paper.run_table import reproduce
    from parsecaps.paper.tables import TABLES

__all__ = ["TABLES", "reproduce"]

_MODULES = {"TABLES": "tables", "reproduce": "run_table"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
