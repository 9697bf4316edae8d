"""Answers of several processes to one archive: each writes a part, and the last one to finish merges them.

A part is a file beside the table with a line of JSON for each image, and a last line once it is finished. Where a
process was killed, the same command goes on where it stopped. The merged table is the one that a single process would
have written, byte for byte.
"""

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import tee
from pathlib import Path
from typing import Any

from parsecaps.model import Model
from parsecaps.prediction.archive import Table, append, cut_unfinished_line, lock_file, owned
from parsecaps.prediction.files import ImageFile, LeftOut, Shard, find_shard
from parsecaps.prediction.predict import Prediction, predict_files
from parsecaps.types import ProgressCallback, silent

_NUMBER, _FINISHED = "number", "finished"
_LONGEST = 2**23  # bytes of the last line, which has at most a thousand names of files that are left out


@dataclass(frozen=True)
class Merged:
    """What a merged table has: its rows, how many of them are errors, and what folders hold beside images."""

    rows: int
    errors: int
    left_out: LeftOut


def part_file(out: Path, shard: Shard) -> Path:
    """Where a process writes its part of a table.

    >>> part_file(Path("answers.csv"), Shard(0, 2)).name
    'answers.csv.part-1-of-2.jsonl'
    """
    return out.with_name(f"{out.name}.part-{shard.rank + 1}-of-{shard.count}.jsonl")


def write_part(
    out: Path,
    model: Model,
    inputs: Iterable[str | Path],
    shard: Shard,
    *,
    risk: float | None = None,
    batch_size: int = 32,
    own: Iterable[Path] = (),
    meet: Callable[[], None] = lambda: None,
    progress: ProgressCallback = silent,
) -> Merged | None:
    """Write the part of this process, and merge all parts if it is the last; None where others are not finished yet.

    What the part has already is not done again. `meet` waits for the other processes: none may finish before all have
    seen what was there at the start. Files of one's `own` are not counted among those that are left out.
    """
    table = Table(out, model)
    parts = [part_file(out, Shard(rank, shard.count)) for rank in range(shard.count)]
    part = parts[shard.rank]
    with owned(part):
        _check_others(out, shard)
        meet()
        if not _is_finished(part):
            left_out = LeftOut([out, *parts, *map(lock_file, [out, *parts]), *own])
            coming, predicted = tee(_after(find_shard(inputs, left_out, shard), part))

            def line(prediction: Prediction) -> str:
                return json.dumps({_NUMBER: next(predicted)[0], **asdict(prediction)}) + "\n"

            with open(part, "a", encoding="utf-8", newline="") as file:
                images = (image for _, image in coming)
                append(file, predict_files(model, images, risk=risk, batch_size=batch_size), line, batch_size, progress)
                file.write(json.dumps({_FINISHED: [left_out.count, left_out.names]}) + "\n")
    with owned(out, wait=True):  # of those that finish at the same moment one merges
        return _merge(table, parts) if all(map(_is_finished, parts)) else None


def _check_others(out: Path, shard: Shard) -> None:
    """Refuse a table that is there already, and parts of another number of processes."""
    named = re.compile(rf"{re.escape(out.name)}\.part-\d+-of-(\d+)\.jsonl")
    counts = {int(found[1]) for path in out.parent.iterdir() if (found := named.fullmatch(path.name))}
    for count in sorted(counts - {shard.count}):
        again = f"go on with {count}, or remove the parts: rm {out}.part-*"
        raise ValueError(f"{out} has parts of {count} processes beside it; {again}")
    if out.exists():
        raise ValueError(f"{out} is there already, and several processes write a new table; choose another file")


def _after(source: Iterator[tuple[int, ImageFile]], part: Path) -> Iterator[tuple[int, ImageFile]]:
    """The files that come after those a part has already, which must be the same and in the same order."""
    cut_unfinished_line(part)
    for row in _rows(part):
        number, image = next(source, (-1, None))
        if image is None or (number, str(image.path), image.frame) != (row[_NUMBER], row["image"], row["frame"]):
            found = "nothing" if image is None else image.name
            raise ValueError(f"{part} has {row['image']}, but the input has {found} there; remove the parts")
    yield from source


def _merge(table: Table, parts: list[Path]) -> Merged:
    """Write the table from all parts, file by file in the order of the input, and remove the parts."""
    found = heapq.merge(*map(_rows, parts), key=lambda row: int(row[_NUMBER]))
    rows, errors = table.write(Prediction(**{key: row[key] for key in row.keys() - {_NUMBER}}) for row in found)
    left_out = LeftOut()
    for part in parts:
        left_out.join(*_last_line(part)[_FINISHED])
    for part in parts:
        part.unlink()
    return Merged(rows, errors, left_out)


def _rows(part: Path) -> Iterator[dict[str, Any]]:
    with open(part, encoding="utf-8") as file:
        for line in file:
            try:
                row = json.loads(line)
                if _FINISHED in row:
                    return
                row[_NUMBER], row["image"], row["frame"]
            except (KeyError, TypeError, ValueError):
                raise ValueError(f"{part} has a line that is no answer; remove the part") from None
            yield row


def _is_finished(part: Path) -> bool:
    return part.exists() and _FINISHED in _last_line(part)


def _last_line(part: Path) -> dict[str, Any]:
    """The last line of a part, empty where it is no line of JSON."""
    with open(part, "rb") as file:
        file.seek(max(0, file.seek(0, 2) - _LONGEST))
        lines = file.read().splitlines()
    try:
        found = json.loads(lines[-1])
    except (IndexError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
