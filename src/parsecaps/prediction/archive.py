"""Answers to any number of files, written as they come: one row for each, and on from where it stopped.

A file that cannot be read is a row with an error, not the end of the run. Of several processes each writes a part, and
the last one to finish merges them. A part is a file beside the table with a line of JSON for each image, and a last
line once it is finished. The merged table is the one that a single process would have written, byte for byte.
"""

import csv
import heapq
import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain, islice, tee
from pathlib import Path
from typing import IO, Any

from filelock import FileLock, Timeout

from parsecaps.data.spreadsheets import text_cell
from parsecaps.files.writing import write_atomically
from parsecaps.model import Model
from parsecaps.prediction.files import ImageFile, LeftOut, Shard, find_shard
from parsecaps.prediction.predict import Prediction, predict_files
from parsecaps.types import ProgressCallback, silent

_PROBABILITY = "probability:"  # before the name of a class
_JSON_START = b'{"image": '  # of a line of a .jsonl file
_NUMBER, _FINISHED = "number", "finished"  # in the lines of a part
_LONGEST = 2**23  # bytes of the last line, which has at most a thousand names of files that are left out


class Table:
    """A `.csv` or `.jsonl` file with a line for each answer of a model; a CSV has its `columns` in the first."""

    def __init__(self, path: Path, model: Model) -> None:
        if path.suffix not in (".csv", ".jsonl"):
            raise ValueError(f"{path} is neither .csv nor .jsonl; choose one of them")
        probabilities = [text_cell(f"{_PROBABILITY}{name}") for name in model.classes]
        presence = [text_cell(f"concept:{name}") for name in model.concepts]
        self.path, self.is_csv = path, path.suffix == ".csv"
        self.columns = ["image", "frame", "patient", "class", *probabilities, *presence, "set", "abstain", "error"]
        self.header = _csv_line(self.columns) if self.is_csv else ""

    def line(self, found: Prediction) -> str:
        """The answer to one image."""
        place = {"image": found.image, "frame": found.frame, "patient": found.patient, "error": found.error}
        if not self.is_csv:
            answer: dict[str, Any] = {**place, "class": found.label, "probabilities": found.probabilities}
            answer |= {"concepts": found.concepts, "set": found.possible, "abstain": found.abstain}
            return json.dumps(place if found.error else answer) + "\n"
        texts = {**place, "class": found.label, "set": " | ".join(found.possible or ())}
        cells: dict[str, Any] = {
            name: text_cell(each) if isinstance(each, str) else each for name, each in texts.items()
        }
        shares = {f"{_PROBABILITY}{name}": value for name, value in (found.probabilities or {}).items()}
        shares |= {f"concept:{name}": value for name, value in (found.concepts or {}).items()}
        cells |= {text_cell(name): f"{value:.6g}" for name, value in shares.items()}
        cells["abstain"] = None if found.abstain is None else int(found.abstain)
        return _csv_line([cells.get(name) for name in self.columns])

    def write(self, predictions: Iterable[Prediction]) -> tuple[int, int]:
        """Write the whole table, which is there once it is complete; gives the numbers of rows and of errors."""
        with write_atomically(self.path) as file:
            file.write(self.header)
            return append(file, predictions, self.line)

    def check_start(self) -> None:
        """Refuse a file that is not a table of this model's answers; its concepts may have been named since."""
        with open(self.path, "rb") as file:
            first = file.readline()
        if not first.endswith(b"\n"):  # of a run that was killed at its start, or of something else
            start = self.header.encode() or _JSON_START
            known = start.startswith(first[: len(start)])
        elif not self.is_csv:
            known = False
            with suppress(AttributeError, ValueError):
                known = {"image", "frame"} <= json.loads(first).keys()
        else:
            written = [text_cell(name) for name in next(csv.reader([first.decode(errors="surrogateescape")]), [])]
            if other := sorted({*written} ^ {*self.columns}):
                raise ValueError(
                    f"{self.path} was written with other columns ({other[0]!r} for one); choose another file"
                )
            known = written == self.columns
        if not known:
            raise ValueError(f"{self.path} is not a table of this model's answers; choose another file")


def _csv_line(cells: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def write_rows(
    path: Path,
    model: Model,
    files: Iterable[ImageFile],
    *,
    risk: float | None = None,
    batch_size: int = 32,
    progress: ProgressCallback = silent,
) -> tuple[int, int]:
    """Write rows to a `.csv` or `.jsonl` file as they come, in bounded memory; what it has already is not done again.

    Gives the number of new rows, and how many of them are errors.
    """
    table = Table(path, model)
    with owned(path):
        rest = iter(files)
        if path.exists():
            table.check_start()
            rest = _after(rest, path)
        rest = chain(list(islice(rest, 1)), rest)  # what the file has is read before anything is added to it
        with open(path, "a", encoding="utf-8", newline="") as file:
            if file.tell() == 0:
                file.write(table.header)
            found = predict_files(model, rest, risk=risk, batch_size=batch_size)
            return append(file, found, table.line, batch_size, progress)


def append(
    file: IO[str],
    predictions: Iterable[Prediction],
    line: Callable[[Prediction], str],
    batch_size: int = 32,
    progress: ProgressCallback = silent,
) -> tuple[int, int]:
    """Write lines for predictions as they come, flushed batch by batch; gives how many, and how many are errors."""
    done = failed = 0
    for done, prediction in enumerate(predictions, 1):
        file.write(line(prediction))
        failed += bool(prediction.error)
        if done % batch_size == 0:
            file.flush()
        progress(done, failed)
    return done, failed


@contextmanager
def owned(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Make sure that no other process writes the table, or `wait` until none does."""
    place = lock_file(path)
    lock = FileLock(place)  # let go by the system, also when a process is killed
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except Timeout:
        raise ValueError(f"{path} is being written by another process; wait for it, or choose another file") from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes it only when it is let go
            place.unlink()
        lock.release()


def lock_file(path: Path) -> Path:
    """The file beside a table that is there while the table is written."""
    path = path.resolve()
    return path.with_name(f".{path.name}.lock")


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a `.csv` or `.jsonl` file that `write_rows` wrote, one at a time, with frames and probabilities."""
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        if path.suffix == ".jsonl":
            yield from map(json.loads, file)
            return
        for row in csv.DictReader(file):
            shares = {name: value for name, value in row.items() if name.startswith(_PROBABILITY) and value}
            probabilities = {name.removeprefix(_PROBABILITY): float(value) for name, value in shares.items()}
            yield {**row, "frame": int(row["frame"]) if row["frame"] else None, "probabilities": probabilities}


def write_patients(path: Path, rows: Path) -> int:
    """Write a `.csv` row of mean probabilities for each patient, or file without one, and return their number."""
    sums: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    counts: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    for row in read_rows(rows):
        patient = row.get("patient", "")
        who = (patient, "" if patient else row["image"])
        counts[who][bool(row["error"])] += 1
        sums[who].update(row.get("probabilities", {}))
    names = list(next(filter(None, sums.values()), ()))
    with write_atomically(path) as file:
        probabilities = (text_cell(f"{_PROBABILITY}{name}") for name in names)
        file.write(_csv_line(["patient", "file", "images", "errors", "class", *probabilities]))
        for (patient, image), each in sums.items():
            images, errors = counts[patient, image]
            shares = [f"{each[name] / images:.6g}" for name in names] if each else [""] * len(names)
            label = max(each, key=each.__getitem__, default="")
            file.write(_csv_line([text_cell(patient), text_cell(image), images, errors, text_cell(label), *shares]))
    return len(sums)


def cut_unfinished_line(path: Path) -> None:
    """Cut off what a killed process left of its last line."""
    with open(path, "rb+") as raw:
        end = raw.seek(0, 2)
        while end and (raw.seek(end - 1), raw.read(1))[1] != b"\n":
            end -= 1
        raw.truncate(end)


def _after(source: Iterator[ImageFile], path: Path) -> Iterator[ImageFile]:
    """The files that come after those a table has already, which must be the same and in the same order."""
    for number, (image, frame) in enumerate(_finished(path), 1):
        file = next(source, None)
        if file is None or (text_cell(str(file.path)), file.frame) != (text_cell(image), frame):
            found = "nothing" if file is None else file.name
            raise ValueError(f"{path} has {image} in row {number}, the input has {found} there; choose another file")
    yield from source


def _finished(path: Path) -> Iterator[tuple[str, int | None]]:
    cut_unfinished_line(path)
    try:
        for row in read_rows(path):
            yield row["image"], row["frame"]
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} has a row that is no answer ({error}); choose another file") from None


def part_file(out: Path, shard: Shard) -> Path:
    """Return the path to which a process writes its part of a table.

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
) -> tuple[int, int, LeftOut] | None:
    """Write the part of this process, and merge all parts if it is the last; None where others are not finished yet.

    Gives how many rows the merged table has, how many of them are errors, and what folders hold beside images.

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
            coming, predicted = tee(_after_part(find_shard(inputs, left_out, shard), part))

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


def _after_part(source: Iterator[tuple[int, ImageFile]], part: Path) -> Iterator[tuple[int, ImageFile]]:
    """The files that come after those a part has already, which must be the same and in the same order."""
    cut_unfinished_line(part)
    for row in _rows(part):
        number, image = next(source, (-1, None))
        if image is None or (number, str(image.path), image.frame) != (row[_NUMBER], row["image"], row["frame"]):
            found = "nothing" if image is None else image.name
            raise ValueError(f"{part} has {row['image']}, but the input has {found} there; remove the parts")
    yield from source


def _merge(table: Table, parts: list[Path]) -> tuple[int, int, LeftOut]:
    """Write the table from all parts, file by file in the order of the input, and remove the parts."""
    found = heapq.merge(*map(_rows, parts), key=lambda row: int(row[_NUMBER]))
    rows, errors = table.write(Prediction(**{key: row[key] for key in row.keys() - {_NUMBER}}) for row in found)
    left_out = LeftOut()
    for part in parts:
        left_out.join(*_last_line(part)[_FINISHED])
    for part in parts:
        part.unlink()
    return rows, errors, left_out


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
