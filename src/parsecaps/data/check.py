"""What a data set holds and what is wrong with it, before anything is trained on it."""

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from parsecaps.data.cache import PreparedImages
from parsecaps.data.case_set import CaseSet
from parsecaps.data.cases import SPLITS, DataSet, Division, Problem, Split
from parsecaps.data.leaks import find_leaks, learned_before, unsafe
from parsecaps.data.reading import image_size, mislabelled
from parsecaps.data.splits import Divided, describe_parts, split_hash
from parsecaps.types import Grid

PARTS = (*SPLITS, "unused")
_SMALLEST = 28  # pixels along a side that a network needs
_WAYS_OUT = "move them to one side with parsecaps data check --fix-split, or keep the split as it is with --allow-leaks"


class Learned(NamedTuple):
    """The fingerprints (N, 32) of what weights learned from, the `whole` or a part; the name goes into cards."""

    name: str
    bits: np.ndarray
    whole: bool

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class DataCheck:
    """Everything that `parsecaps data check` prints.

    `by_class` and `by_concept` (present, absent, unknown) are counts for each part of the split; `co_occurrence[i][j]`
    counts the cases with the concepts i and j; `ceiling` is the accuracy of the best possible reader of the concepts
    alone. `unused` counts the cases in no part by reason; unreadable ones are in no other count. `reasons` say why
    training would be unsafe.
    """

    source: str
    root: str
    classes: tuple[str, ...]
    concepts: tuple[str, ...]
    images: int
    patients: int
    images_per_patient: tuple[int, int]
    by_class: dict[str, dict[str, int]]
    patients_by_part: dict[str, int]
    unused: dict[str, int]
    by_concept: dict[str, dict[str, dict[str, int]]]
    sizes: dict[str, int]
    co_occurrence: list[list[int]]
    ceiling: float | None
    ceiling_cases: int
    split_hash: str
    problems: list[str]
    odd: list[str]
    leaks: list[str]
    notes: list[str]
    reasons: list[str]

    @property
    def safe(self) -> bool:
        return not self.reasons

    @property
    def parts(self) -> list[str]:
        """The parts of the split; "unused" if some cases take no part."""
        return [part for part in PARTS if part != "unused" or self.patients_by_part[part]]

    def as_dict(self) -> dict[str, Any]:
        """Return a JSON-serialisable dict."""
        return {**asdict(self), "safe": self.safe}

    def tables(self) -> list[Grid]:
        """Classes and patients by part, then the concepts."""
        counted = {name: {**each, "all": sum(each.values())} for name, each in self.by_class.items()}
        counted["patients"] = {**self.patients_by_part, "all": self.patients}
        rows = [(name, *(f"{each[part]:,}" for part in (*self.parts, "all"))) for name, each in counted.items()]
        tables = [Grid("classes and patients", ("class", *self.parts, "all"), rows)]
        if self.concepts:
            heads = [f"{part} 1 / 0 / unknown" for part in self.parts]
            found = [
                (name, *(" / ".join(f"{count:,}" for count in by_part[part].values()) for part in self.parts))
                for name, by_part in self.by_concept.items()
            ]
            tables.append(Grid("concepts: present, absent, unknown", ("concept", *heads), found))
        return tables

    def lines(self, most: int) -> list[str]:
        """Everything else, at most so many lines of a kind, and the verdict last."""
        fewest, largest = self.images_per_patient
        by_class = self.by_class.values()
        in_parts: dict[Split | None, int] = {part: sum(counts[part] for counts in by_class) for part in SPLITS}
        sizes = ", ".join(f"{size} ({count:,})" for size, count in list(self.sizes.items())[:5])
        lines = [
            f"{self.source}: {self.root}",
            f"{self.images:,} images of {self.patients:,} patients, {fewest} to {largest} each",
            f"split: {describe_parts(in_parts, self.unused)}; hash {self.split_hash}",
            f"sizes: {sizes}{' and others' if len(self.sizes) > 5 else ''}",
        ]
        if self.ceiling is not None:
            most_right = f"at most {100 * self.ceiling:.1f} % of {self.ceiling_cases:,} cases"
            lines.append(f"the concepts alone can name the class in {most_right}")
        kinds = {"note": self.notes, "problem": self.problems, "odd": self.odd, "leak": self.leaks}
        for title, found in kinds.items():
            lines += [f"{title}: {line}" for line in found[:most]]
            if len(found) > most:
                lines.append(f"{title}: {len(found) - most:,} more; --json and --page have all of them")
        return [*lines, "safe to train on" if self.safe else "UNSAFE: " + "; ".join(self.reasons)]


def check_data(
    data: DataSet,
    prepared: PreparedImages,
    divided: Divided,
    *,
    skip_bad: bool = False,
    allow_leaks: bool = False,
    learned: Learned | None = None,
) -> DataCheck:
    """Count, compare and judge a data set and its division, beside what weights to start from have `learned` from."""
    cases = CaseSet(data, prepared)
    good = set(cases.rows)
    division = [part if i in good else None for i, part in enumerate(divided.division)]
    parts = np.array([division[row] or "unused" for row in cases.rows], dtype=str)
    of_masks, odd = _look_at(cases)
    found = [*divided.problems, *data.problems, *prepared.problems, *of_masks]
    leaks = find_leaks(data, division, prepared.digests, prepared.fingerprints)
    crossing = unsafe(leaks, division)
    notes = [*data.notes, *divided.notes]
    if found and skip_bad:
        were = "problem was" if len(found) == 1 else "problems were"
        notes.append(f"{len(found)} {were} skipped on demand (--skip-bad)")
    if crossing and allow_leaks:
        notes.append(f"WARNING: {len(crossing)} leaks between the parts were allowed on demand (--allow-leaks)")
    before, more_notes = ([], []) if learned is None else _learned_before(cases, division, learned)
    notes += more_notes
    if before and allow_leaks:
        notes.append(f"WARNING: {len(before)} test cases that {learned} learned from were allowed (--allow-leaks)")
    start = f"among what {learned} learned from; start from other weights, or leave these cases out"
    unsafe_counts = (
        ("test case", len(before), allow_leaks, start),
        ("leak", len(crossing), allow_leaks, f"between the parts; {_WAYS_OUT}"),
        ("problem", len(found), skip_bad, "in the files; mend them, or leave them out with --skip-bad"),
    )
    reasons = [f"{_count(n, what)} {why}" for what, n, is_allowed, why in unsafe_counts if n and not is_allowed]
    reasons += _class_reasons(data, division)
    patients = np.array(cases.patients, dtype=object)
    per_patient = Counter(cases.patients)
    ceiling, ceiling_cases = concept_ceiling(cases)
    present = (cases.concepts == 1).astype(int)
    by_class = Counter(zip(cases.labels.tolist(), parts.tolist(), strict=True))
    names = [*enumerate(data.classes), *([(-1, "unknown")] if (cases.labels < 0).any() else [])]
    sizes = Counter(prepared.sizes[row] for row in cases.rows)
    return DataCheck(
        source=data.source,
        root=str(data.root),
        classes=data.classes,
        concepts=data.concepts,
        images=len(cases),
        patients=len(per_patient),
        images_per_patient=(min(per_patient.values(), default=0), max(per_patient.values(), default=0)),
        by_class={name: {part: by_class[label, part] for part in PARTS} for label, name in names},
        patients_by_part={part: len(set(patients[parts == part])) for part in PARTS},
        unused=divided.unused(good),
        by_concept={
            name: _by_part(values, parts) for name, values in zip(data.concepts, cases.concepts.T, strict=True)
        },
        sizes={f"{width} x {height}": count for (height, width), count in sizes.most_common()},
        co_occurrence=(present.T @ present).tolist(),
        ceiling=ceiling,
        ceiling_cases=ceiling_cases,
        split_hash=split_hash(data, division),
        problems=[str(problem) for problem in found],
        odd=[*odd, *(leak.describe(data, division) for leak in leaks if leak not in crossing)],
        leaks=[*(leak.describe(data, division) for leak in crossing), *before],
        notes=notes,
        reasons=reasons,
    )


def _learned_before(cases: CaseSet, division: Division, learned: Learned) -> tuple[list[str], list[str]]:
    """A line for each test case that the weights learned from, and notes."""
    data = cases.data
    if data.look_alikes:
        return [], [f"pictures of {data.source} look alike: whether {learned} learned from them is not checked"]
    unknown = f"{learned} does not know all that it learned from: whether cases of the test part are among it is open"
    notes = [] if learned.whole else [unknown]
    seen = learned_before(cases.prepared.fingerprints, cases.rows, learned.bits)
    tested = [data.name_of(data.cases[i]) for i in seen if division[i] == "test"]
    lines = [f"{name}, in test, is among what {learned} learned from" for name in tested]
    if choosing := sum(division[i] == "val" for i in seen):
        some = _count(choosing, "validation case")
        notes.append(f"{some} among what {learned} learned from: the confidence may be too high")
    return lines, notes


def concept_ceiling(cases: CaseSet) -> tuple[float | None, int]:
    """The accuracy of the best possible reader of the concepts alone, and its number of cases.

    The reader names the most frequent class of each pattern of concepts, unknown being a value of its own. Only cases
    with a class and a known concept count. With few cases per pattern this flatters.
    """
    known = np.nan_to_num(cases.concepts, nan=-1)
    counted = (cases.labels >= 0) & (known >= 0).any(1)
    total, most = int(counted.sum()), dict[tuple[float, ...], int]()
    pairs = Counter(zip(map(tuple, known[counted].tolist()), cases.labels[counted].tolist(), strict=True))
    for (pattern, _), count in pairs.items():
        most[pattern] = max(count, most.get(pattern, 0))
    return (sum(most.values()) / total if total else None), total


def _look_at(cases: CaseSet) -> tuple[list[Problem], list[str]]:
    """Masks that cannot be read, or have another size than their image; and images that look wrong.

    Such are of one colour, too small for any network, or named as another format.
    """
    problems, odd = [], []
    for row, case in zip(cases.rows, cases, strict=True):
        height, width = cases.prepared.sizes[row]
        image = cases.prepared.images[row]
        if image.min() == image.max():
            odd.append(f"{case.name}: every pixel has the same value")
        if min(height, width) < _SMALLEST:
            odd.append(f"{case.name}: only {width} x {height} pixels")
        if cases.data.draw is None and case.frame is None and (wrong := mislabelled(case.image)):
            odd.append(f"{case.image} {wrong}")
        if case.mask is None or case.mask == case.image:
            continue
        try:
            h, w = image_size(case.mask)
            reason = f"the mask is {w} x {h}, its image {width} x {height}; give a mask of the image's size"
        except (OSError, ValueError) as error:
            h, w, reason = 0, 0, str(error).removeprefix(f"{case.mask} ")
        if (h, w) != (height, width):
            problems.append(Problem(str(case.mask), case.row, reason))
    return problems, odd


def _class_reasons(data: DataSet, division: Division) -> list[str]:
    reasons = []
    if len(data.classes) < 2:
        reasons.append(f"at least two classes are needed; found {', '.join(data.classes) or 'none'}")
    if "train" not in division:
        return [*reasons, "no case is in the training part; check the split"]
    for label, name in enumerate(data.classes):
        here = [(case.patient, part) for case, part in zip(data.cases, division, strict=True) if case.label == label]
        if len({patient for patient, _ in here}) == 1:
            reasons.append(f"class {name} has one patient only: it cannot be both trained and tested; merge or drop it")
        elif all(part != "train" for _, part in here):
            reasons.append(f"class {name} has no case in the training part; move some there")
    return reasons


def _by_part(values: np.ndarray, parts: np.ndarray) -> dict[str, dict[str, int]]:
    tests = {"present": values == 1, "absent": values == 0, "unknown": (values != 1) & (values != 0)}
    return {part: {name: int((test & (parts == part)).sum()) for name, test in tests.items()} for part in PARTS}


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"
