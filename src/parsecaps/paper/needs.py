"""The data sets that tables need: where to get them, what their folder looks like, and where they are here."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from parsecaps.data.cases import DataSet
from parsecaps.data.sources import SOURCES, open_data

FOLDER_VARIABLE = "PARSECAPS_DATA"


@dataclass(frozen=True)
class Need:
    """A data set by its name in `SOURCES`, what people call it, and where it comes from.

    The rest is what a timing has to know before the data are there: images to train on, their side and channels,
    classes and concepts. `instead` says what may stand in.
    """

    name: str
    title: str
    where: str
    images: int
    side: int
    channels: int
    classes: int
    concepts: int = 0
    instead: str = ""

    def ask(self) -> str:
        """One line that asks for it."""
        source = SOURCES[self.name]
        instead = f"; {self.instead}" if self.instead else ""
        place = f"give --data {self.name}:PATH, or put it at {self.name} below the folder that {FOLDER_VARIABLE} names"
        return f"{self.title} is not at hand: get it from {self.where} ({source.layout}) and {place}{instead}"


_CONCEPTS = "any data set with concepts may stand in: --data PATH"
CEMRI = Need(
    name="cemri",
    title="CE-MRI",
    where="https://doi.org/10.6084/m9.figshare.1512427",
    images=2450,
    side=512,
    channels=1,
    classes=3,
    instead="any other data set may stand in, without published figures: --data PATH",
)
PH2 = Need("ph2", "PH2", "https://www.fc.up.pt/addi/ph2%20database.html", 130, 560, 3, 2, 7, _CONCEPTS)
DERM7PT = Need("derm7pt", "Derm7pt", "https://derm.cs.sfu.ca", 350, 512, 3, 2, 7, _CONCEPTS)
PH2D7 = Need("ph2d7", "PH2 and Derm7pt together", "the two of them", 480, 512, 3, 2, 7, _CONCEPTS)
MNIST = Need("mnist", "MNIST", "http://yann.lecun.com/exdb/mnist", 55_000, 28, 1, 10)
AFFNIST = Need(
    name="affnist",
    title="affNIST",
    where="https://www.cs.toronto.edu/~tijmen/affNIST",
    images=55_000,
    side=40,
    channels=1,
    classes=10,
    instead="or let digits made from MNIST stand in, under the name affNIST-like: --data affnist-like:PATH_TO_MNIST",
)
PHANTOM = Need("phantom", "the phantom (drawn, nothing to get)", "nowhere", 1400, 64, 3, 2, 7)


def find(need: Need) -> str | None:
    """Where a data set is, by the variable `PARSECAPS_DATA`; None where it is not."""
    source = SOURCES[need.name]
    if not source.needs_path:
        return f"{need.name}:n=2000,size=64"
    root = os.environ.get(FOLDER_VARIABLE)
    place = Path(root) / need.name if root else None
    return f"{need.name}:{place}" if place is not None and place.is_dir() and source.recognise(place) else None


def choose_data(given: Sequence[str], needs: Sequence[Need], *, one_of: bool = False) -> list[tuple[str, DataSet]]:
    """The data sets that were given, or those that a table needs, each opened; refused where one is missing.

    With `one_of`, those of them that are here will do.
    """
    if given:
        return [(path, _open(path, needs)) for path in given]
    found = [(need, find(need)) for need in needs]
    there = [(path, open_data(path)) for _, path in found if path is not None]
    missing = [need.ask() for need, path in found if path is None]
    if missing and not (one_of and there):
        raise FileNotFoundError(". ".join(missing))
    return there


def _open(path: str, needs: Sequence[Need]) -> DataSet:
    """A data set; where nothing is at a path, the line says what it should be."""
    try:
        return open_data(path)
    except FileNotFoundError as error:
        name = path.partition(":")[0]
        asked = next((need for need in needs if need.name == name), None)
        raise FileNotFoundError(f"{error}. {asked.ask()}" if asked is not None else str(error)) from None
