"""Answers to any number of files, written as they come: one row for each, and on from where it stopped.

A file that cannot be read is a row with an error, not the end of the run.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any

from parsecaps.prediction.bundle import Bundle
from parsecaps.prediction.files import ImageFile
from parsecaps.prediction.predict import Prediction, predict_files

_PROBABILITY = "probability:"  # before the name of a class


def columns(bundle: Bundle) -> list[str]:
    """The columns of a CSV, in order."""
    probabilities = [f"{_PROBABILITY}{name}" for name in bundle.classes]
    presence = [f"concept:{name}" for name in bundle.concepts]
    return ["image", "frame", "patient", "class", *probabilities, *presence, "set", "abstain", "error"]


def write_rows(
    path: Path,
    bundle: Bundle,
    files: Iterable[ImageFile],
    *,
    risk: float | None = None,
    batch_size: int = 32,
    progress: Callable[[int, int], None] = lambda done, errors: None,
) -> tuple[int, int]:
    """Write rows to a `.csv` or `.jsonl` file as they come; what the file has already is not done again.

    Gives the number of new rows, and how many of them are errors. Memory does not grow with the number of files.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"{path} is neither .csv nor .jsonl; choose one of them")
    rest = _after(files, path)
    first = next(rest, None)  # what the file has is read before anything is added to it
    rest = rest if first is None else chain([first], rest)
    done = failed = 0
    names = columns(bundle)
    _check_header(path, names)
    with open(path, "a", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv" and file.tell() == 0:
            csv.writer(file, lineterminator="\n").writerow(names)
        for prediction in predict_files(bundle, rest, risk=risk, batch_size=batch_size):
            _write(file, prediction, names if path.suffix == ".csv" else None)
            done, failed = done + 1, failed + bool(prediction.error)
            if done % batch_size == 0:
                file.flush()
            progress(done, failed)
    return done, failed


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a `.csv` or `.jsonl` file that `write_rows` wrote, one at a time, with frames and probabilities."""
    with open(path, encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            yield from map(json.loads, file)
            return
        for row in csv.DictReader(file):
            shares = {name: value for name, value in row.items() if name.startswith(_PROBABILITY) and value}
            probabilities = {name.removeprefix(_PROBABILITY): float(value) for name, value in shares.items()}
            yield {**row, "frame": int(row["frame"]) if row["frame"] else None, "probabilities": probabilities}


def write_patients(path: Path, rows: Path) -> int:
    """Write a `.csv` file with a row for each patient of a file of `write_rows`: what all their images say together.

    As in `metrics.patients`, that is the class with the highest mean probability. Images of which nobody says
    whose they are are read together if they are of one file. Gives the number of patients.
    """
    sums: dict[tuple[str, str], dict[str, float]] = {}
    counts: dict[tuple[str, str], list[int]] = {}
    for row in read_rows(rows):
        patient = row.get("patient", "")
        who = (patient, "" if patient else row["image"])
        sums.setdefault(who, {})
        count = counts.setdefault(who, [0, 0])
        count[bool(row["error"])] += 1
        for name, share in row.get("probabilities", {}).items():
            sums[who][name] = sums[who].get(name, 0.0) + share
    names = list(next((each for each in sums.values() if each), {}))
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["patient", "file", "images", "errors", "class", *(f"{_PROBABILITY}{name}" for name in names)])
        for (patient, image), each in sums.items():
            images, errors = counts[patient, image]
            shares = [f"{each[name] / images:.6g}" for name in names] if each else [""] * len(names)
            writer.writerow([patient, image, images, errors, max(each, key=each.__getitem__, default=""), *shares])
    return len(sums)


def _check_header(path: Path, names: list[str]) -> None:
    """Refuse a CSV with other columns: of another model, or from before its concepts were named."""
    if path.suffix != ".csv" or not path.exists() or not path.stat().st_size:
        return
    with open(path, encoding="utf-8", newline="") as file:
        written = next(csv.reader(file), [])
    if other := set(written) ^ set(names):
        raise ValueError(f"{path} was written with other columns ({sorted(other)[0]!r} for one); choose another file")


def _write(file: IO[str], found: Prediction, names: list[str] | None) -> None:
    place = {
        "image": found.image,
        "frame": found.frame,
        "patient": found.patient,
        "error": found.error,
    }
    if names is None:
        answer = {
            "class": found.label,
            "probabilities": found.probabilities,
            "concepts": found.concepts,
            "set": found.possible,
            "abstain": found.abstain,
        }
        file.write(json.dumps(place if found.error else {**place, **answer}) + "\n")
        return
    cells: dict[str, Any] = {**place, "class": found.label}
    cells |= {f"{_PROBABILITY}{name}": f"{value:.6g}" for name, value in (found.probabilities or {}).items()}
    cells |= {f"concept:{name}": f"{value:.6g}" for name, value in (found.concepts or {}).items()}
    cells["set"] = "" if found.possible is None else " | ".join(found.possible)
    cells["abstain"] = "" if found.abstain is None else int(found.abstain)
    csv.writer(file, lineterminator="\n").writerow(["" if cells.get(name) is None else cells[name] for name in names])


def _after(files: Iterable[ImageFile], path: Path) -> Iterator[ImageFile]:
    """The files that come after those a table has already, which must be the same and in the same order."""
    source = iter(files)
    for number, (image, frame) in enumerate(_finished(path), 1):
        file = next(source, None)
        if file is None or (str(file.path), file.frame) != (image, frame):
            found = "nothing" if file is None else file.name
            raise ValueError(
                f"{path} has {image} as row {number}, but the input has {found} there; choose another file"
            )
    yield from source


def _finished(path: Path) -> Iterator[tuple[str, int | None]]:
    """The rows of a file, one at a time; a last line that a killed run left unfinished is cut off first."""
    if not path.exists():
        return
    with open(path, "rb+") as raw:
        end = raw.seek(0, 2)
        while end and (raw.seek(end - 1), raw.read(1))[1] != b"\n":
            end -= 1
        raw.truncate(end)
    for row in read_rows(path):
        yield row["image"], row["frame"]
