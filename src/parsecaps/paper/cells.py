"""What tables are made of: models to compare, cells to finish one by one, and a budget for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from parsecaps.config import Config
from parsecaps.models import all_models, find_model
from parsecaps.run import Run
from parsecaps.training.choose import LARGEST_DIGIT

Budget = Literal["quick", "hour", "full"]
BUDGETS: tuple[Budget, ...] = get_args(Budget)
Measured = Mapping[str, Any]  # what is kept of a cell, ready for JSON
Log = Callable[[str], None]


@dataclass(frozen=True)
class Scale:
    """How large a table is at a budget: epochs, image size, and how many images train and test at most.

    Epochs of None are as many as make all cells together take about an hour here, by a timing of each model.
    """

    epochs: int | None
    size: int
    train: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Column:
    """A model to compare: its name in the table, its kind in `MODELS`, and how it differs from the preset.

    Without a kind its figures are published ones only, and `note` says why it is not built. `recipe` names the shipped
    configuration whose optimizer it takes, that of its kind if blank. `unnamed` concepts are those nobody labelled.
    """

    name: str
    kind: str = ""
    preset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    recipe: str = ""
    note: str = ""
    unnamed: int = 0

    def model_section(self, size: int, concepts: int) -> dict[str, Any]:
        """The settings of its network for images of this size, or of the largest that it takes."""
        size, settings = min(size, find_model(self.kind).largest_image), dict(self.settings)
        return {
            "kind": self.kind,
            "preset": self.preset or ("digits" if size <= LARGEST_DIGIT else "medical"),
            "image_size": size,
            "head": settings.pop("head", "parallel"),
            "num_concepts": concepts,
            "settings": settings,
        }


@dataclass(frozen=True)
class Cell:
    """One training, or one measurement: the smallest thing that is finished or not.

    `name` is its folder below `cells`, with the protocol it belongs to. What `measure` gives of the trained run (or of
    its folder, without a training) is kept there. Cells with the same `cases` must have trained on the same split. It
    needs the cells in `after`, which are finished first.
    """

    name: str
    measure: Callable[[Run], Measured]
    config: Config | None = None
    cases: str = ""
    after: tuple["Cell", ...] = ()


@dataclass(frozen=True)
class Request:
    """What was asked for; `epochs` are those of the budget if left out."""

    budget: Budget
    out: Path
    data: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    seed: int = 0
    epochs: int | None = None


@dataclass(frozen=True)
class Load:
    """What training a cell will cost, before any data are read: how often how many images of which form."""

    column: Column
    size: int
    channels: int
    classes: int
    concepts: int
    images: int


def choose_columns(columns: Sequence[Column], wanted: Sequence[str], table: str) -> list[Column]:
    """All columns, or those that were asked for; any other of `MODELS` may be asked for too."""
    if not wanted:
        return list(columns)
    known = {each.name.casefold(): each for each in columns if each.kind}
    for kind in all_models():
        known.setdefault(kind.casefold(), Column(kind, kind))
    for name in wanted:
        if name.casefold() not in known:
            raise ValueError(
                f"{table} knows no model {name!r}; {nearest(name, [each.name for each in known.values()])}"
            )
    return [known[name.casefold()] for name in wanted]


def nearest(name: str, names: Sequence[str]) -> str:
    """What may have been meant by a name that is not known.

    >>> nearest("clasification", ["classification", "leak"])
    "did you mean 'classification'?"
    """
    near = get_close_matches(name.casefold(), [each.casefold() for each in names], n=1, cutoff=0.6)
    if near:
        return f"did you mean {next(each for each in names if each.casefold() == near[0])!r}?"
    return f"choose one of {', '.join(names)}"
