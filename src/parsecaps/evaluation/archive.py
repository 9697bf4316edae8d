"""A model over any number of files: one row for each, in bounded memory, and on from where it stopped.

A file that cannot be read is a row with an error, not the end of the run.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from scipy.special import softmax

from parsecaps.bundle import Bundle
from parsecaps.data.reading import count_frames, read_image, read_patient
from parsecaps.data.sources import manifest
from parsecaps.data.sources.folder import is_image
from parsecaps.evaluation.conformal import prediction_sets

_PROBABILITY = "probability:"  # before the name of a class


class Item(NamedTuple):
    """An image to look at: a file, and the frame where it has several; or why there is none.

    `patient` is whom a manifest or the file itself names, blank where neither does.
    """

    image: Path
    frame: int | None = None
    error: str = ""
    patient: str = ""

    @property
    def name(self) -> str:
        return str(self.image) if self.frame is None else f"{self.image}#{self.frame}"


@dataclass(frozen=True)
class Decision:
    """How logits become an answer: the temperature they are divided by, and the least probability within the set.

    Without a `threshold` there are no sets, and nothing abstains.
    """

    temperature: float = 1.0
    threshold: float | None = None


def find_items(inputs: Iterable[str | Path]) -> Iterator[Item]:
    """The images of files, folders (with all below) and manifests; of a file with several frames, each one."""
    for text in inputs:
        path = Path(text)
        if path.is_dir():
            files = (file for file in sorted(path.rglob("*")) if file.is_file() and not file.name.startswith("."))
            file = None
            for file in filter(is_image, files):
                yield from _frames(file)
            if file is None:
                yield Item(path, None, f"{path} has no image in it; check its path")
        elif manifest.recognise(path):
            listed = manifest.read(str(path))
            for case in listed.cases:
                yield Item(case.image, case.frame, patient=case.patient)
            for problem in listed.problems:
                yield Item(Path(problem.file), None, str(problem))
        else:
            yield from _frames(path)


def predict_items(
    bundle: Bundle, items: Iterable[Item], decision: Decision, *, batch_size: int = 32
) -> Iterator[dict[str, Any]]:
    """One row per image, in order: its class, the probabilities, the presence of concepts, and whether to abstain."""
    source = iter(items)
    while batch := list(islice(source, batch_size)):
        images, errors = [], []
        for item in batch:
            image, error = _prepare(bundle, item)
            errors.append(error)
            if image is not None:
                images.append(image)
        answers = iter(_answer(bundle, torch.stack(images), decision)) if images else iter(())
        for item, error in zip(batch, errors, strict=True):
            row: dict[str, Any] = {
                "image": str(item.image),
                "frame": item.frame,
                "patient": item.patient,
                "error": error,
            }
            yield row if error else {**row, **next(answers)}


def columns(bundle: Bundle) -> list[str]:
    """The columns of a CSV, in order."""
    probabilities = [f"{_PROBABILITY}{name}" for name in bundle.classes]
    presence = [f"concept:{name}" for name in bundle.concepts]
    return ["image", "frame", "patient", "class", *probabilities, *presence, "set", "abstain", "error"]


def write_rows(
    path: Path,
    bundle: Bundle,
    items: Iterable[Item],
    decision: Decision,
    *,
    batch_size: int = 32,
    progress: Callable[[int, int], None] = lambda done, errors: None,
) -> tuple[int, int]:
    """Write rows to a `.csv` or `.jsonl` file as they come; what the file has already is not done again.

    Gives the number of new rows, and how many of them are errors. Memory does not grow with the number of files.
    """
    if path.suffix not in (".csv", ".jsonl"):
        raise ValueError(f"{path} is neither .csv nor .jsonl; choose one of them")
    rest = _after(items, path)
    first = next(rest, None)  # what the file has is read before anything is added to it
    rest = rest if first is None else chain([first], rest)
    done = failed = 0
    names = columns(bundle)
    _check_header(path, names)
    with open(path, "a", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv" and file.tell() == 0:
            csv.writer(file, lineterminator="\n").writerow(names)
        for row in predict_items(bundle, rest, decision, batch_size=batch_size):
            _write(file, row, names if path.suffix == ".csv" else None)
            done, failed = done + 1, failed + bool(row["error"])
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


def _check_header(path: Path, names: list[str]) -> None:
    """Refuse a CSV with other columns: of another model, or from before its concepts were named."""
    if path.suffix != ".csv" or not path.exists() or not path.stat().st_size:
        return
    with open(path, encoding="utf-8", newline="") as file:
        written = next(csv.reader(file), [])
    if other := set(written) ^ set(names):
        raise ValueError(f"{path} was written with other columns ({sorted(other)[0]!r} for one); choose another file")


def write_patients(path: Path, rows: Path) -> int:
    """Write a `.csv` file with a row for each patient of a file of `write_rows`: what all their images say together.

    As in `evaluation.by_patient`, that is the class with the highest mean probability. Images of which nobody says
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


def _frames(path: Path) -> Iterator[Item]:
    try:
        count, patient = count_frames(path), read_patient(path)
    except (OSError, ValueError) as error:
        yield Item(path, None, str(error))
        return
    frames = [None] if count == 1 else list(range(count))
    yield from (Item(path, frame, patient=patient) for frame in frames)


def _prepare(bundle: Bundle, item: Item) -> tuple[torch.Tensor | None, str]:
    if item.error:
        return None, item.error
    try:
        return bundle.preparation.prepare(read_image(item.image, item.frame)), ""
    except (OSError, ValueError) as error:
        return None, str(error)


@torch.no_grad()
def _answer(bundle: Bundle, images: torch.Tensor, decision: Decision) -> Iterator[dict[str, Any]]:
    device = next(bundle.model.parameters()).device
    output = bundle.model.eval()(images.to(device))
    probabilities = softmax(output.logits.double().cpu().numpy() / decision.temperature, axis=1)
    presence = None if output.presence is None else output.presence.cpu().numpy()
    sets = None if decision.threshold is None else prediction_sets(probabilities, decision.threshold)
    for i, share in enumerate(probabilities):
        inside = None if sets is None else np.flatnonzero(sets[i])
        yield {
            "class": bundle.classes[int(share.argmax())],
            "probabilities": dict(zip(bundle.classes, share.tolist(), strict=True)),
            "concepts": {} if presence is None else dict(zip(bundle.concepts, presence[i].tolist(), strict=False)),
            "set": None if inside is None else [bundle.classes[j] for j in inside],
            "abstain": None if inside is None else len(inside) != 1,
        }


def _write(file: IO[str], row: Mapping[str, Any], names: list[str] | None) -> None:
    if names is None:
        file.write(json.dumps(row) + "\n")
        return
    flat = {**row, **{f"{_PROBABILITY}{name}": f"{value:.6g}" for name, value in row.get("probabilities", {}).items()}}
    flat |= {f"concept:{name}": f"{value:.6g}" for name, value in row.get("concepts", {}).items()}
    flat["set"] = "" if row.get("set") is None else " | ".join(row["set"])
    flat["abstain"] = "" if row.get("abstain") is None else int(row["abstain"])
    csv.writer(file, lineterminator="\n").writerow(["" if flat.get(n) is None else flat[n] for n in names])


def _after(items: Iterable[Item], path: Path) -> Iterator[Item]:
    """The items that come after those a file has already, which must be the same and in the same order."""
    source = iter(items)
    for number, (image, frame) in enumerate(_finished(path), 1):
        item = next(source, None)
        if item is None or (str(item.image), item.frame) != (image, frame):
            found = "nothing" if item is None else item.name
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
