"""The figures that others published, as printed, each with where it stands and who measured it (`published.yaml`)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@dataclass(frozen=True)
class Published:
    """The printed figures of one table: rows by name, what to know of them, and where they stand."""

    source: str = ""
    remarks: tuple[str, ...] = ()
    rows: Mapping[str, Mapping[str, Any]] = ()  # type: ignore[assignment]

    def figure(self, row: str, *keys: str) -> float | None:
        """A number by the name of its row and its keys; None where nothing was printed.

        >>> published("classification").figure("ParseCaps", "glioma", "recall")
        99.39
        """
        found: Any = dict(self.rows).get(row, {})
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        return float(found) if isinstance(found, int | float) else None

    def by(self, row: str) -> str:
        """Who measured it."""
        return str(dict(self.rows).get(row, {}).get("by", ""))


@cache
def published(table: str) -> Published:
    """What was printed for a table; nothing for one whose figures are pictures."""
    stored = yaml.safe_load((files("parsecaps.paper") / "published.yaml").read_text(encoding="utf-8"))
    found = stored.get(table, {})
    return Published(found.get("source", ""), tuple(found.get("remarks", ())), found.get("rows", {}))
