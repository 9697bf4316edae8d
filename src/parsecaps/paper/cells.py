"""The parts of a table: models to compare, cells to finish one by one, and a budget for all of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from parsecaps.config import LARGEST_IMAGE, Config, load_config
from parsecaps.models import all_models, find_model
from parsecaps.models.parsecaps import LEAST_IMAGE
from parsecaps.paper.listing import Budget
from parsecaps.run import Run
from parsecaps.training.choose import LARGEST_DIGIT

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
    `published` is the row of published figures, that of its name if blank; `largest` the width of its images at most.
    One `as_printed` is the network of the paper's presets, trained once by the paper's recipe; its images are enlarged
    if they are too small for it.
    """

    name: str
    kind: str = ""
    preset: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    recipe: str = ""
    note: str = ""
    unnamed: int = 0
    published: str = ""
    largest: int = LARGEST_IMAGE
    as_printed: bool = False

    def printed_recipe(self, size: int) -> Config:
        """The paper's recipe for images of this size."""
        return load_config("parsecaps-paper" if size > LARGEST_DIGIT else "parsecaps-paper-digits")

    def model_section(self, size: int, concepts: int) -> dict[str, Any]:
        """The settings of its network for images of this size, or of the largest that it takes."""
        size, settings = min(size, self.largest, find_model(self.kind).largest_image), dict(self.settings)
        preset = self.preset or ("digits" if size <= LARGEST_DIGIT else "medical")
        if self.as_printed:
            preset = self.printed_recipe(size).model.preset
            size = max(size, LEAST_IMAGE.get(preset, size))
        return {
            "kind": self.kind,
            "preset": preset,
            "image_size": size,
            "head": settings.pop("head", "parallel"),
            "num_concepts": concepts,
            "settings": settings,
        }


AS_PRINTED = Column(
    "ParseCaps, as printed", "ParseCaps", note="by the paper's recipe", published="ParseCaps", as_printed=True
)
_ALIASES = dict.fromkeys((AS_PRINTED.name.casefold(), "medical-paper", "digits-paper"), AS_PRINTED)


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
    optimizer: str = "muon"  # or "usual"


def choose_columns(columns: Sequence[Column], wanted: Sequence[str], table: str) -> list[Column]:
    """All columns, or those that were asked for; any other of `MODELS` may be asked for too."""
    if not wanted:
        return list(columns)
    known = {each.name.casefold(): each for each in columns if each.kind}
    for name, column in (*_ALIASES.items(), *((kind, Column(kind, kind)) for kind in all_models())):
        known.setdefault(name.casefold(), column)
    for name in wanted:
        if name.casefold() not in known:
            names = dict.fromkeys(each.name for each in known.values())
            near = get_close_matches(name.casefold(), known, n=1)
            advice = f"did you mean {known[near[0]].name!r}? It knows" if near else "choose one of"
            raise ValueError(f"{table} knows no model {name!r}; {advice} {'; '.join(names)}")
    return [known[name.casefold()] for name in wanted]
