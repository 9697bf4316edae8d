"""What a source of data, one file in `data/sources`, gives: cases with their labels, and problems, but no pixels."""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
Division = list[Split | None]  # the part of each case of a data set
EXTENSIONS = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".dcm", ".dicom", ".nii", ".nii.gz")  # of images
SPLIT_WORDS: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}
UNKNOWN = float("nan")

# What the sources of skin images share: the classes of the task and the concepts, in one order.
SKIN_CLASSES = ("nevus", "melanoma")
SKIN_CONCEPTS = (
    *("typical pigment network", "atypical pigment network", "blue-whitish veil"),
    *("regular streaks", "irregular streaks", "regular dots and globules", "irregular dots and globules"),
)


class Problem(NamedTuple):
    """Something wrong with a data set: where, and what, in one line that says what to do about it.

    >>> str(Problem("cases.csv", 7, "the label is blank; write one of nevus, melanoma"))
    'cases.csv, row 7: the label is blank; write one of nevus, melanoma'
    """

    file: str
    row: int | None
    reason: str

    def __str__(self) -> str:
        place = self.file if self.row is None else f"{self.file}, row {self.row}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Case:
    """One image and its labels.

    `frame` is an index into a file of several images; `label` one into the classes of the data set, -1 where unknown.
    `concepts` are 1, 0 or NaN (unknown), one per concept of the data set. Images of one `patient` stay in one part of a
    split. `fold` is the author's; `row` is that of the table, as a spreadsheet counts.
    """

    image: Path
    label: int
    patient: str
    frame: int | None = None
    concepts: tuple[float, ...] = ()
    split: Split | None = None
    fold: int | None = None
    mask: Path | None = None
    row: int | None = None

    @property
    def name(self) -> str:
        """The file, and the frame where it has several."""
        return str(self.image) if self.frame is None else f"{self.image}#{self.frame}"


@dataclass(frozen=True)
class DataSet:
    """The cases of a source with the names of their classes and concepts.

    Rows with `problems` are not among the cases. `notes` are for the reader. `draw`, of a source without files, takes
    indices of cases and gives their pixels (n, 3, H, W) uint8. `concept_masks` takes indices and a size and gives where
    each concept is: (n, concepts, size, size) bool, of whole images. `look_alikes`: different cases can look the same,
    as handwritten digits do. `members` are the sets that were joined, by name, in the order of their cases.
    """

    source: str
    root: Path
    classes: tuple[str, ...]
    concepts: tuple[str, ...]
    cases: Sequence[Case]
    problems: Sequence[Problem] = ()
    notes: Sequence[str] = ()
    draw: Callable[[Sequence[int]], np.ndarray] | None = None
    concept_masks: Callable[[Sequence[int], int], np.ndarray] | None = None
    look_alikes: bool = False
    members: "tuple[tuple[str, DataSet], ...]" = ()

    def __post_init__(self) -> None:
        for what, names in (("classes", self.classes), ("concepts", self.concepts)):
            if len(set(names)) != len(names):
                twice = Counter(names).most_common(1)[0][0]
                raise ValueError(f"{self.root}: two of the {what} are called {twice!r}; give each its own name")

    def __len__(self) -> int:
        return len(self.cases)

    @property
    def class_sets(self) -> tuple[int, ...]:
        """For each class, the number of the member it belongs to; 0 for all where nothing was joined."""
        members = [each for _, each in self.members] or [self]
        return tuple(number for number, each in enumerate(members) for _ in each.classes)

    def name_of(self, case: Case) -> str:
        """The image's path below the root, or its absolute path; with forward slashes on every system."""
        root = Path(os.path.abspath(self.root.parent if self.root.is_file() else self.root))
        image = Path(os.path.abspath(case.image))
        return image.relative_to(root).as_posix() if image.is_relative_to(root) else image.as_posix()

    def has_masks(self, rows: Sequence[int]) -> bool:
        """Whether it is known of some of these cases where the lesion is."""
        return self.concept_masks is not None or any(self.cases[row].mask is not None for row in rows)

    def subset(self, rows: Sequence[int]) -> "DataSet":
        """The same data set with only these cases, in this order."""
        draw, masks = self.draw, self.concept_masks
        drawn = None if draw is None else lambda indices: draw([rows[i] for i in indices])
        masked = None if masks is None else lambda indices, size: masks([rows[i] for i in indices], size)
        return replace(self, cases=[self.cases[row] for row in rows], draw=drawn, concept_masks=masked)


def read_options(source: str, text: str, defaults: Mapping[str, float]) -> dict[str, float]:
    """The options behind the name of a source, as in `n=200,size=64`, each of the kind that its default has."""
    options = dict(defaults)
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if name not in defaults:
            known = ", ".join(f"{name}={value}" for name, value in defaults.items())
            raise ValueError(f"{source} has no option {name!r}; write {known}")
        try:
            options[name] = type(defaults[name])(value)
        except ValueError:
            raise ValueError(f"{part} of {source} is not a number; write {name}={defaults[name]}, say") from None
    return options


# For each column of a table of skin images: its concepts, and what a word says of them; nothing where it says nothing.
SkinCriteria = Mapping[str, tuple[tuple[str, ...], Mapping[str, tuple[float, ...]]]]


def read_skin_concepts(cells: Mapping[str, str], criteria: SkinCriteria) -> tuple[tuple[float, ...], list[str]]:
    """The concepts in the order of `SKIN_CONCEPTS`, and what is wrong with the cells; a blank one is unknown."""
    present: dict[str, float] = {}
    wrong = []
    for column, (concepts, meaning) in criteria.items():
        value = cells[column].strip()
        if value and value.casefold() not in meaning:
            wrong.append(f"{column} is {value!r}; known are {', '.join(meaning)}")
        elif value:
            present |= zip(concepts, meaning[value.casefold()], strict=False)
    return tuple(present.get(concept, UNKNOWN) for concept in SKIN_CONCEPTS), wrong


def first_of_patients(data: DataSet, rows: Sequence[int], most: int) -> list[int]:
    """The first image of each of the first patients, the classes in turn as long as there are some."""
    first = sorted({data.cases[row].patient: row for row in reversed(rows)}.values())
    by_class = [[row for row in first if data.cases[row].label == label] for label in range(len(data.classes))]
    turns = [row for turn in zip_longest(*by_class) for row in turn if row is not None]
    return turns[:most]


def join(names: Sequence[str], sets: Sequence[DataSet]) -> DataSet:
    """One data set of all cases; classes, concepts and patients are called `set/name`, other sets' concepts unknown."""
    named = [*zip(names, sets, strict=True)]
    drawn = [name for name, each in named if each.draw is not None]
    if 0 < len(drawn) < len(sets):
        raise ValueError(f"{drawn[0]} is drawn and others are files, which cannot be joined; leave one kind out")
    num_concepts = sum(len(each.concepts) for each in sets)
    cases, first_class, first_concept = [], 0, 0
    for name, each in named:
        before = (UNKNOWN,) * first_concept
        after = (UNKNOWN,) * (num_concepts - first_concept - len(each.concepts))
        for case in each.cases:
            label = case.label + first_class if case.label >= 0 else -1
            own = case.concepts or (UNKNOWN,) * len(each.concepts)
            concepts, patient = (*before, *own, *after), f"{name}/{case.patient}"
            cases.append(replace(case, label=label, concepts=concepts, patient=patient))
        first_class += len(each.classes)
        first_concept += len(each.concepts)
    roots = [os.path.abspath(each.root.parent if each.root.is_file() else each.root) for each in sets]
    try:
        root = Path(os.path.commonpath(roots))
    except ValueError:  # several drives
        root = Path(Path(roots[0]).anchor)
    return DataSet(
        source=", ".join(dict.fromkeys(each.source for each in sets)),
        root=root,
        classes=tuple(f"{name}/{label}" for name, each in named for label in each.classes),
        concepts=tuple(f"{name}/{concept}" for name, each in named for concept in each.concepts),
        cases=cases,
        problems=[problem for each in sets for problem in each.problems],
        notes=[f"{name}: {note}" for name, each in named for note in each.notes],
        draw=partial(_draw_all, sets) if drawn else None,
        look_alikes=any(each.look_alikes for each in sets),
        members=tuple(named),
    )


def _draw_all(sets: Sequence[DataSet], rows: Sequence[int]) -> np.ndarray:
    firsts = np.cumsum([0, *map(len, sets)])
    pictures = []
    for row in rows:
        number = int(np.searchsorted(firsts, row, side="right")) - 1
        draw = sets[number].draw
        assert draw is not None
        pictures.append(draw([row - int(firsts[number])])[0])
    if len({each.shape for each in pictures}) > 1:
        raise ValueError("drawn sets of several sizes cannot be joined; draw them in one size")
    return np.stack(pictures)
