"""What the sources of skin images share: the classes of the task and the concepts, in one order."""

from collections.abc import Mapping

from parsecaps.data.cases import UNKNOWN

CLASSES = ("nevus", "melanoma")
CONCEPTS = (
    "typical pigment network",
    "atypical pigment network",
    "blue-whitish veil",
    "regular streaks",
    "irregular streaks",
    "regular dots and globules",
    "irregular dots and globules",
)


def concept_values(present: Mapping[str, float]) -> tuple[float, ...]:
    """The values in the order of `CONCEPTS`; what is not given is unknown."""
    return tuple(present.get(concept, UNKNOWN) for concept in CONCEPTS)
