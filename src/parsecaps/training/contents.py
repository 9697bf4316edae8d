"""What the cases of a run were when it was started, in short, so that it is never resumed on others."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from parsecaps.data.cases import DataSet
from parsecaps.data.splits import Division, relative_name
from parsecaps.data.tables import read_table

COLUMN = "content"  # of a run's split.csv, beside those of `data.splits`


def contents_of(data: DataSet, digests: Sequence[str]) -> list[str]:
    """Twelve characters for each case that stand for its file, its class and its concepts.

    `digests` are those of `data.cache.PreparedImages`: equal where the pixels come from equal files.
    """
    found = []
    for case, digest in zip(data.cases, digests, strict=True):
        label = data.classes[case.label] if case.label >= 0 else None
        concepts = list(zip(data.concepts, map(str, case.concepts), strict=False))
        found.append(hashlib.sha256(repr((digest, label, concepts)).encode()).hexdigest()[:12])
    return found


def check_contents(path: Path, data: DataSet, division: Division, digests: Sequence[str]) -> None:
    """Refuse to go on where a case that takes part is not what the split file says it was."""
    rows = read_table(path, required=("image",), optional=("frame", COLUMN), others=True).rows
    then = {(row.cells["image"], row.cells.get("frame", "")): row.cells.get(COLUMN, "") for row in rows}
    for case, part, now in zip(data.cases, division, contents_of(data, digests), strict=True):
        name, frame = relative_name(data, case), "" if case.frame is None else str(case.frame)
        if (name, frame) not in then:
            raise ValueError(f"{name} was added to {data.root} after the run was started; move it away to resume")
        if part is not None and then[name, frame] not in ("", now):
            raise ValueError(
                f"{name} has other pixels, another class or other concepts than when the run was started; "
                "put it back to resume, or train anew"
            )
