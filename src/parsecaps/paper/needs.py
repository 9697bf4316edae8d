"""The data that tables need: where to get them, where they are here, and the one split that all models share."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from filelock import FileLock

from parsecaps.config import DataSection
from parsecaps.data.cache import prepare_all
from parsecaps.data.cases import DataSet, Division, Split
from parsecaps.data.leaks import find_leaks, move_to_one_side, unsafe
from parsecaps.data.preparation import Preparation, Scaling
from parsecaps.data.sources import SOURCES, absolute, open_data
from parsecaps.data.splits import divide, rows_of, write_split
from parsecaps.files.writing import make_private_folder, plain_name
from parsecaps.paper.cells import Scale
from parsecaps.paper.listing import FOLDER_VARIABLE, find_folder
from parsecaps.training.choose import look_at

CEMRI_FOLD = 3  # that is tested, of the author's five


@dataclass(frozen=True)
class Need:
    """A data set by its name in `SOURCES`: its title, source, what may stand in, and its sizes for timings.

    `folder` is where it is looked for, `name` by default.
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
    folder: str = ""

    def ask(self) -> str:
        """One line that asks for it."""
        instead = f"; {self.instead}" if self.instead else ""
        below = f"{self.folder or self.name} below the folder that {FOLDER_VARIABLE} names"
        place = f"give --data {self.name}:PATH, or put it at {below}"
        layout = SOURCES[self.name].layout
        return f"{self.title} is not at hand: get it from {self.where} ({layout}) and {place}{instead}"


_CONCEPTS = "any data set with concepts may stand in: --data PATH"
_ANY = "any other data set may stand in, without published figures: --data PATH"
_MADE = "or let digits made from MNIST stand in, under the name affNIST-like: --data affnist-like:PATH_TO_MNIST"
CEMRI = Need("cemri", "CE-MRI", "https://doi.org/10.6084/m9.figshare.1512427", 2450, 512, 1, 3, instead=_ANY)
PH2 = Need("ph2", "PH2", "https://www.fc.up.pt/addi/ph2%20database.html", 130, 560, 3, 2, 7, _CONCEPTS)
DERM7PT = Need("derm7pt", "Derm7pt", "https://derm.cs.sfu.ca", 350, 512, 3, 2, 7, _CONCEPTS)
PH2D7 = Need("ph2d7", "PH2 and Derm7pt together", "where the two are", 480, 512, 3, 2, 7, _CONCEPTS)
MNIST = Need("mnist", "MNIST", "http://yann.lecun.com/exdb/mnist", 55_000, 28, 1, 10)
AFFNIST = Need("affnist", "affNIST", "https://www.cs.toronto.edu/~tijmen/affNIST", 55_000, 40, 1, 10, instead=_MADE)
PHANTOM = Need("phantom", "the phantom (drawn, nothing to get)", "nowhere", 1400, 64, 3, 2, 7)


def find(need: Need) -> str | None:
    """Where a data set is, by the variable `PARSECAPS_DATA`; None where it is not."""
    return find_folder(need.name, need.folder)


def choose_data(given: Sequence[str], needs: Sequence[Need], *, one_of: bool = False) -> list[tuple[str, DataSet]]:
    """The data sets given, or those a table needs (with `one_of`, any of them), opened; refused if missing."""
    opened = []
    for path in given:
        try:
            opened.append((path, open_data(path)))
        except FileNotFoundError as error:
            asked = [need.ask() for need in needs if need.name == path.partition(":")[0]]
            raise FileNotFoundError(". ".join([str(error), *asked])) from None
    if given:
        return opened
    found = [(need, find(need)) for need in needs]
    there = [(path, open_data(path)) for _, path in found if path is not None]
    missing = [need.ask() for need, path in found if path is None]
    if missing and not (one_of and there):
        raise FileNotFoundError(". ".join(missing))
    return there


@dataclass(frozen=True)
class TableCases:
    """A data set with the split that all models share, the rows `tested`, and the path of data tested `beside` it."""

    name: str
    path: str
    data: DataSet
    division: Division
    split_file: Path
    size: int
    channels: int
    tested: tuple[int, ...]
    beside: str = ""

    def rows(self, part: Split) -> list[int]:
        """The cases of a part."""
        return rows_of(self.division, part)

    def describe(self) -> str:
        """How many images of how many patients train and test."""

        def counted(part: Split) -> str:
            rows = self.rows(part)
            return f"{len(rows):,} images of {len({self.data.cases[row].patient for row in rows}):,} patients"

        validated = f", {counted('val')} validate" if self.rows("val") else ""
        return f"{self.name}: {counted('train')} train{validated}, {counted('test')} test"


def share_cases(
    folder: Path, path: str, data: DataSet, scale: Scale, *, name: str = "", given: Division | None = None
) -> TableCases:
    """A data set with the split that all models of a table share, written once below the folder of the protocol.

    By patient: the official parts or the author's folds if there are any, else a fifth of the patients is tested; those
    whose pictures look the same are on one side. A `given` division stays as it is.
    """
    if not len(data):
        raise ValueError(f"{path} has no case that could be used; see parsecaps data check {path}")
    name = name or data_name(data)
    division = given
    if division is None:
        folds = {case.fold for case in data.cases}
        tested_fold = (CEMRI_FOLD,) if CEMRI_FOLD in folds and len(folds) > 1 else ()
        divided = divide(data, DataSection(val=0.15, test=0.2, seed=0, test_fold=tested_fold)).division
        division = thin(data, divided, {"train": scale.train, "test": scale.test, "val": scale.test})
    look = look_at(data, rows_of(division, "train"))
    size, channels = max(28, min(scale.size, look.longer)), 3 if look.has_colour else 1
    if given is None:
        division = without_leaks(data, division, Preparation(size, channels, scaling=scaling_of(data)))
    make_private_folder(folder)
    file = (folder / f"split-{name}.csv").resolve()
    unfinished = file.with_name(f".{file.name}.new")
    with FileLock(folder / ".split.lock", mode=0o600):
        write_split(unfinished, data, division, private=True)
        if file.is_file() and file.read_bytes() != unfinished.read_bytes():
            unfinished.unlink()
            raise ValueError(
                f"{file} divides other cases than this table would; choose another --out, or remove {file.parent}"
            )
        unfinished.replace(file)
    return TableCases(name, absolute(path), data, division, file, size, channels, tuple(rows_of(division, "test")))


def scaling_of(data: DataSet) -> Scaling:
    """How the pixels of a data set become numbers, for all models."""
    return "percentile" if data.source == "cemri" else "range"


def without_leaks(data: DataSet, division: Division, preparation: Preparation) -> Division:
    """The division with patients whose pictures look the same on one side: training would refuse it otherwise."""
    prepared = prepare_all(data, preparation, skip_bad=True)
    there = set(prepared.good)
    readable: Division = [part if i in there else None for i, part in enumerate(division)]
    leaks = unsafe(find_leaks(data, readable, prepared.digests, prepared.fingerprints), readable)
    return move_to_one_side(data, division, leaks) if leaks else division


def data_name(data: DataSet) -> str:
    """What to call a data set: its source, or its folder where anybody's data have that source."""
    place = data.root.parent if data.root.is_file() else data.root
    return data.source if data.source not in ("manifest", "folder") else plain_name(str(place)) or data.source


def thin(data: DataSet, division: Division, most: Mapping[Split, int | None], seed: int = 0) -> Division:
    """A division with at most so many images in each part: some patients are left out, the classes in turn."""
    random = np.random.default_rng(seed)
    result: Division = list(division)
    for part, limit in most.items():
        rows = rows_of(division, part)
        if limit is None or len(rows) <= limit:
            continue
        by_patient: dict[str, list[int]] = defaultdict(list)
        for row in rows:
            by_patient[data.cases[row].patient].append(row)
        patients = sorted(by_patient)
        random.shuffle(patients)
        turns: dict[int, Iterator[int]] = defaultdict(count)  # the k-th patient of a class comes in turn k
        turn = {patient: next(turns[data.cases[by_patient[patient][0]].label]) for patient in patients}
        kept = 0
        for patient in sorted(patients, key=lambda each: turn[each]):
            own = by_patient[patient]
            if kept + len(own) <= limit:
                kept += len(own)
                continue
            for row in own if kept else own[limit:]:  # one patient alone may be more than the limit
                result[row] = None
            kept = kept or limit
    return result
