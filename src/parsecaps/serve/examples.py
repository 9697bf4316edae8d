"""Images to try the page with: some cases of the run that the model never learned from, where its data are at hand."""

from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from threading import Lock

import numpy as np

from parsecaps.data.cases import DataSet
from parsecaps.data.kept import kept_file
from parsecaps.report.pictures import png_file
from parsecaps.run import run_of_bundle


@dataclass(frozen=True)
class Example:
    """A case of the data: its row, and its class, None where it is not known."""

    row: int
    label: str | None


class Examples:
    """The first test cases (validation without any) of the first patients, the classes in turn; none without data."""

    def __init__(self, bundle_folder: Path | None, most: int) -> None:
        self._folder, self._most, self._lock = bundle_folder, most, Lock()

    def __len__(self) -> int:
        with self._lock:
            return len(self._found[1])

    @property
    def labels(self) -> list[str | None]:
        """The classes of the examples, in order."""
        with self._lock:
            return [each.label for each in self._found[1]]

    @cached_property
    def _found(self) -> tuple[DataSet | None, list[Example]]:
        run = None if self._folder is None or not self._most else run_of_bundle(self._folder)
        if run is None:
            return None, []
        try:
            data, rows = run.data, run.rows("test") or run.rows("val")
        except (OSError, ValueError):  # the data are elsewhere, or were changed: there is nothing to show
            return None, []
        usable = [row for row in rows if data.draw is not None or data.cases[row].frame is None]
        first = sorted({data.cases[row].patient: row for row in reversed(usable)}.values())
        labels = [data.cases[row].label for row in first]
        by_class = [[row for row, each in zip(first, labels, strict=True) if each == label] for label in sorted({*labels})]
        turns = [row for turn in zip_longest(*by_class) for row in turn if row is not None][: self._most]
        named = [data.cases[row].label for row in turns]
        return data, [Example(row, data.classes[k] if k >= 0 else None) for row, k in zip(turns, named, strict=True)]

    def content(self, number: int) -> bytes:
        """The file of an example, without what may name a patient; IndexError where there is none."""
        with self._lock:
            data, examples = self._found
        example = examples[number]
        assert data is not None
        if data.draw is not None:
            return png_file(np.moveaxis(data.draw([example.row])[0], 0, -1))
        return kept_file(data.cases[example.row].image).content
