"""The columns of the table that sets methods side by side, the same in the terminal and on the page."""

from collections.abc import Iterable
from typing import NamedTuple

from parsecaps.audit.maps import MapAudit
from parsecaps.metrics import Score


class Column(NamedTuple):
    """A number of a method: its name, what it is, and whether a low one is good."""

    key: str
    title: str
    about: str
    low: bool = False
    sign: bool = False


COLUMNS = (
    Column("pointing", "pointing game", "how often the highest point is inside the mask"),
    Column("needed", "where needed", "the same where the answer changes if what the mask covers is painted over"),
    Column("mass", "mass inside", "share of the map inside the mask"),
    Column("ratio", "times share", "mass inside over the mask's share of the image; a map without a clue has 1"),
    Column("iou", "IoU", "overlap with the mask at one threshold for all cases of a target, the best one"),
    Column("deletion_area", "deletion", "area under the curve as the most relevant regions are covered", low=True),
    Column("deletion_gain", "gain", "how much lower than with regions in random order", sign=True),
    Column("insertion_area", "insertion", "area under the curve as the most relevant regions are uncovered"),
    Column("insertion_gain", "gain", "how much higher than with regions in random order", sign=True),
    Column("spearman", "random weights", "rank correlation with the maps of the model made random", low=True),
)


_LOCALISATION = ("pointing", "needed", "mass", "ratio", "iou")


def grouped(columns: Iterable[Column]) -> dict[str, list[Column]]:
    """The columns by the question they answer, so that no table is too wide; questions without columns are left out."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        where = column.key in _LOCALISATION
        groups.setdefault("is it where the thing is" if where else "does the decision rest on it", []).append(column)
    return groups


def map_scores(audit: MapAudit) -> dict[str, Score]:
    """The scores of one method by the key of their column; those that were not measured are left out."""
    scores: dict[str, Score] = {}
    if audit.localisation is not None:
        found = audit.localisation
        scores |= {"pointing": found.pointing, "mass": found.mass, "ratio": found.ratio, "iou": found.iou}
        if found.needed is not None:
            scores["needed"] = found.needed
    if audit.faithfulness is not None:
        faithful = audit.faithfulness
        scores |= {
            "deletion_area": faithful.deletion_area,
            "deletion_gain": faithful.deletion_gain,
            "insertion_area": faithful.insertion_area,
            "insertion_gain": faithful.insertion_gain,
        }
    if audit.randomised is not None and audit.randomised.spearman:
        scores["spearman"] = audit.randomised.spearman[-1]
    return scores


def number(column: Column, value: float | None) -> str:
    """Two digits for a factor, three for all else.

    >>> number(COLUMNS[0], 0.9), number(COLUMNS[3], 4.25), number(COLUMNS[6], 0.1), number(COLUMNS[0], None)
    ('0.900', '4.25', '+0.100', '-')
    """
    if value is None:
        return "-"
    if column.key == "ratio":
        return f"{value:.2f}"
    return f"{value:+.3f}" if column.sign else f"{value:.3f}"


def interval(column: Column, score: Score) -> str:
    """The 95 % interval, blank where there is none."""
    return "" if score.low is None else f"{number(column, score.low)} to {number(column, score.high)}"
