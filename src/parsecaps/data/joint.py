"""Several data sets as one, to learn from together: each keeps its own classes, concepts, patients and parts."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np

from parsecaps.config import DataSection
from parsecaps.data.cases import UNKNOWN, DataSet
from parsecaps.data.sources import open_data
from parsecaps.files.writing import plain_name

_PLAIN = ("manifest", "cases", "images", "data")  # file names that say less than the folder they are in


def open_all(section: DataSection) -> DataSet:
    """The data set that the settings name; where they name others to learn from as well, all of them as one."""
    given, wanted = len(section.licences), 1 + len(section.also)
    if given not in (0, wanted):
        raise ValueError(f"{given} licences for {wanted} data sets; give one for each, in their order")
    first = open_data(section.path, section.source)
    if not section.also:
        return first
    paths = [section.path, *section.also]
    return join(set_names(paths), [first, *(open_data(path) for path in section.also)])


def set_names(paths: Sequence[str]) -> list[str]:
    """A short name for each data set, by its path; numbered where two would be called the same.

    >>> set_names(["data/isic/manifest.csv", "data/bus", "other/bus", "phantom:n=200,size=64"])
    ['isic', 'bus', 'bus-2', 'phantom']
    """
    names: list[str] = []
    for path in paths:
        place = Path(path.partition(",")[0])
        name = place.stem if place.suffix else place.name
        if name.lower() in _PLAIN and place.parent.name:
            name = place.parent.name
        name = plain_name(name.partition(":")[0]) or "data"
        numbered = (f"{name}-{number}" for number in count(2))
        names.append(name if name not in names else next(each for each in numbered if each not in names))
    return names


def join(names: Sequence[str], sets: Sequence[DataSet]) -> DataSet:
    """One data set of the cases of all, in their order; `members` has the sets by their names.

    Classes, concepts and patients are called `set/name`, so those of two sets are never taken for the same. What one
    set says nothing about, as the concepts of another, is unknown there.
    """
    if len({each.draw is None for each in sets}) > 1:
        drawn = next(name for name, each in zip(names, sets, strict=True) if each.draw is not None)
        raise ValueError(f"{drawn} is drawn and others are files, which cannot be joined; leave one kind out")
    num_concepts = sum(len(each.concepts) for each in sets)
    cases, first_class, first_concept = [], 0, 0
    for name, each in zip(names, sets, strict=True):
        before = (UNKNOWN,) * first_concept
        after = (UNKNOWN,) * (num_concepts - first_concept - len(each.concepts))
        for case in each.cases:
            label = case.label + first_class if case.label >= 0 else -1
            own = case.concepts or (UNKNOWN,) * len(each.concepts)
            concepts, patient = (*before, *own, *after), f"{name}/{case.patient}"
            cases.append(replace(case, label=label, concepts=concepts, patient=patient))
        first_class += len(each.classes)
        first_concept += len(each.concepts)
    return DataSet(
        source=", ".join(dict.fromkeys(each.source for each in sets)),
        root=_common_folder(sets),
        classes=_prefixed(names, [each.classes for each in sets]),
        concepts=_prefixed(names, [each.concepts for each in sets]),
        cases=cases,
        problems=[problem for each in sets for problem in each.problems],
        notes=[f"{name}: {note}" for name, each in zip(names, sets, strict=True) for note in each.notes],
        draw=None if sets[0].draw is None else _DrawAll(sets),
        look_alikes=any(each.look_alikes for each in sets),
        members=tuple(zip(names, sets, strict=True)),
    )


class _DrawAll:
    """Draws the cases of all sets, by their places in the joint one."""

    def __init__(self, sets: Sequence[DataSet]) -> None:
        self.sets = sets
        self.firsts = np.cumsum([0, *map(len, sets)])

    def __call__(self, rows: Sequence[int]) -> np.ndarray:
        pictures = []
        for row in rows:
            number = int(np.searchsorted(self.firsts, row, side="right")) - 1
            draw = self.sets[number].draw
            assert draw is not None
            pictures.append(draw([row - int(self.firsts[number])])[0])
        if len({each.shape for each in pictures}) > 1:
            raise ValueError("drawn sets of several sizes cannot be joined; draw them in one size")
        return np.stack(pictures)


def _prefixed(names: Sequence[str], listed: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(f"{name}/{each}" for name, group in zip(names, listed, strict=True) for each in group)


def _common_folder(sets: Sequence[DataSet]) -> Path:
    """The nearest folder above all data sets, so that every image has a name of its own below it."""
    roots = [os.path.abspath(each.root.parent if each.root.is_file() else each.root) for each in sets]
    try:
        return Path(os.path.commonpath(roots))
    except ValueError:  # several drives
        return Path(Path(roots[0]).anchor)


def absolute(path: str) -> str:
    """The data set's name such that it can be found from another folder too.

    >>> absolute("phantom:n=200")
    'phantom:n=200'
    """
    if Path(path).exists():
        return str(Path(path).resolve())
    source, colon, place = path.partition(":")
    return f"{source}:{Path(place).resolve()}" if colon and place and Path(place).exists() else path
