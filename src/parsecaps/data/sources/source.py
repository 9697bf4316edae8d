"""What a source is, and what all of them need to turn rows into cases."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from parsecaps.data.cases import Case, DataSet, Problem, Split

SPLIT_WORDS: dict[str, Split] = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "dev": "val",
    "test": "test",
    "testing": "test",
}


@dataclass(frozen=True)
class Source:
    """A layout of data: how it is recognised, and how its cases are listed.

    `layout` says in a few words which files it looks for. `recognise` looks at names only; a source that is chosen by
    its name alone recognises nothing. `read` takes the path, or what stands after `name:`; a source that draws its
    images may do without (`needs_path=False`).
    """

    name: str
    summary: str
    layout: str
    recognise: Callable[[Path], bool]
    read: Callable[[str], DataSet]
    needs_path: bool = True


class Gathered:
    """The cases and problems of one table while its rows are read.

    A row is a case or has problems, never both, never neither: `add` refuses an image that is already there.
    """

    def __init__(self, table: Path, problems: Sequence[Problem] = ()) -> None:
        self.table = table
        self.cases: list[Case] = []
        self.problems: list[Problem] = list(problems)
        self._rows: dict[tuple[Path, int | None], int | None] = {}

    def refuse(self, row: int | None, reason: str) -> None:
        """Say what is wrong with a row."""
        self.problems.append(Problem(str(self.table), row, reason))

    def add(self, case: Case) -> None:
        """Take a case, or refuse it where its image is there already."""
        key = (case.image, case.frame)
        if key in self._rows:
            self.refuse(case.row, f"image {case.name} is already in row {self._rows[key]}; remove one of the rows")
        else:
            self._rows[key] = case.row
            self.cases.append(case)
