"""Images to try the page with: some cases of the run that the model never learned from, where its data are at hand."""

from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np

from parsecaps.data.cases import DataSet, first_of_patients
from parsecaps.data.kept import kept_file
from parsecaps.report.pictures import png_file
from parsecaps.run import Run


@dataclass(frozen=True)
class Example:
    """A case of the data: its row, and its class."""

    row: int
    label: str


class Examples:
    """The first test cases (validation without any) of the first patients, the classes in turn; none without data."""

    def __init__(self, run: Run | None, most: int) -> None:
        self._run, self._most, self._lock = run, most, Lock()

    @property
    def labels(self) -> list[str]:
        """The classes of the examples, in order."""
        with self._lock:
            return [each.label for each in self._found[1]]

    @cached_property
    def _found(self) -> tuple[DataSet | None, list[Example]]:
        run = self._run
        if run is None or not self._most:
            return None, []
        try:
            data, rows = run.data, run.rows("test") or run.rows("val")
        except (OSError, ValueError):  # the data are elsewhere, or were changed: there is nothing to show
            return None, []
        usable = [row for row in rows if data.cases[row].frame is None]
        shown = first_of_patients(data, usable, self._most)
        return data, [Example(row, data.classes[data.cases[row].label]) for row in shown]

    def content(self, number: int) -> bytes:
        """The file of an example, without what may name a patient; IndexError where there is none."""
        with self._lock:
            data, examples = self._found
        from PIL import Image

        example = examples[number]
        assert data is not None
        if data.draw is not None:
            return png_file(Image.fromarray(np.moveaxis(data.draw([example.row])[0], 0, -1).squeeze()))
        return kept_file(data.cases[example.row].image).content
