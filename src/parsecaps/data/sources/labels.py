"""One spelling for one class."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple


class Spelling(NamedTuple):
    """The spellings to use, and for each other one what is wrong with it."""

    right: set[str]
    wrong: dict[str, str]


def settle_spelling(labels: Sequence[str]) -> Spelling:
    """Of labels that differ only in case or in spaces around them, keep the most frequent, else the first.

    >>> settle_spelling(["nevus", "Nevus", "nevus", "melanoma "]).wrong["Nevus"]
    "'Nevus' and 'nevus' differ only in case; write 'nevus'"
    """
    groups: dict[str, Counter[str]] = {}
    for label in labels:
        groups.setdefault(label.strip().casefold(), Counter())[label] += 1
    right, wrong = set(), {}
    for spellings in groups.values():
        clean = Counter({label: count for label, count in spellings.items() if label == label.strip()})
        best = (clean or spellings).most_common(1)[0][0].strip()
        right.add(best)
        for label in spellings.keys() - {best}:
            if label.strip() == best:
                wrong[label] = f"{label!r} has spaces around it; write {best!r}"
            else:
                wrong[label] = f"{label!r} and {best!r} differ only in case; write {best!r}"
    return Spelling(right, wrong)
