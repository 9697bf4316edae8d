"""The parts of a table: models to compare, cells to finish one by one, and a budget for all of them."""

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
    """A table at a budget: epochs (None: as many as fit into an hour), image size, most images to train and test."""

    epochs: int | None
    size: int
    train: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Column:
    """A model to compare: its name in the table, its kind in `MODELS`, and how it differs from the preset.

    Without a kind it has published figures only, and `note` says why. `recipe` names the shipped configuration whose
    optimizer it takes, that of its kind if blank. `unnamed` is the number of its concepts that nobody labelled.
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
    """One training or measurement: the smallest unit of work.

    `name` is its folder below `cells`, with its protocol. The result of `measure` on the trained run (or its folder,
    without a training) is kept there. Cells with the same `cases` share a split. The cells in `after` come first.
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
    """The shape of one training, known before any data are read, from which its time is estimated."""

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
            names = [each.name for each in known.values()]
            raise ValueError(f"{table} knows no model {name!r}; {nearest(name, names)}")
    return [known[name.casefold()] for name in wanted]


def nearest(name: str, names: Sequence[str]) -> str:
    """What may have been meant by an unknown name.

    >>> nearest("clasification", ["classification", "leak"])
    "did you mean 'classification'?"
    """
    known = {each.casefold(): each for each in names}
    near = get_close_matches(name.casefold(), known, n=1)
    return f"did you mean {known[near[0]]!r}?" if near else f"choose one of {', '.join(names)}"
