"""Explanations as DICOM objects beside the study: a report, a picture and, where there is a geometry, maps."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any
from warnings import catch_warnings

from pydicom.uid import generate_uid

from parsecaps.explain.explanation import Explanation
from parsecaps.export.dicom_objects import Device, DicomSource, make_capture, make_map, make_report
from parsecaps.files.writing import make_private_folder, plain_name, remove_empty, write_binary
from parsecaps.model import Model
from parsecaps.models.pretrained import weights_digest

_KINDS = ("report", "picture", "map")
_LARGEST_SERIES = 10**6
_OTHER_SERIES = 9
_LONGEST_NAME = 40
_MOST_PIXELS = 2**24  # of a map; highdicom holds several copies of it in memory
_quiet = Lock()


@dataclass(frozen=True)
class DicomWritten:
    """How many objects of each kind were written, and a line for each image that none was written for."""

    counts: Counter[str]
    errors: list[str]

    def __str__(self) -> str:
        found = [f"{self.counts[kind]:,} {kind}{'s' * (self.counts[kind] != 1)}" for kind in _KINDS]
        return f"{', '.join(found[:-1])} and {found[-1]}"


@contextmanager
def dicom_folder(folder: Path) -> Iterator[None]:
    """Make the folder that objects go to, and refuse what would end the work only after it.

    In the end it is removed again if nothing was written to it.
    """
    made = make_private_folder(folder)
    try:
        yield
    finally:
        remove_empty(made)


def write_dicom(model: Model, explanations: Sequence[Explanation], folder: Path) -> DicomWritten:
    """Write the objects of each image that came from a DICOM file into a folder; no file there is ever replaced.

    An image of another format, or one whose header lacks what an object must repeat, costs a line. Without any object
    in the end it is a ValueError, and the folder is not there if it was not before.
    """
    device, series = Device(type(model.network).__name__, weights_digest(model.network)), _Series()
    counts, errors = Counter[str](), list[str]()
    with dicom_folder(folder):
        for number, explanation in enumerate(explanations, 1):
            try:
                source = None if explanation.source is None else DicomSource.read(explanation.source)
            except (OSError, ValueError) as error:
                errors.append(str(error))
                continue
            if source is None:
                errors.append(f"{explanation.name} is not a DICOM file, so no DICOM object was written for it")
                continue
            if source.has_geometry and source.num_pixels > _MOST_PIXELS:
                errors.append(
                    f"{explanation.name} has {source.num_pixels:,} pixels, too many for parametric maps of it"
                )
            name = f"{number:03d}-{plain_name(explanation.name)[:_LONGEST_NAME]}"
            with _quiet, catch_warnings(action="ignore"):  # one thread at a time: the filters are those of all threads
                for kind, item in _objects(explanation, source, device, model, series):
                    source.complete(item)
                    with write_binary(folder / f"{name}-{kind}-{item.SOPInstanceUID}.dcm") as file:
                        item.save_as(file, enforce_file_format=True)
                    counts[kind] += 1
        if not counts:
            raise ValueError(errors[0])
    return DicomWritten(counts, errors)


def _objects(
    explanation: Explanation, source: DicomSource, device: Device, model: Model, series: "_Series"
) -> Iterator[tuple[str, Any]]:
    """A report, a picture and, where the geometry is known, a map for each; one by one, for maps can be large."""
    yield "report", make_report(explanation, source, device, series.place("report", source))
    yield "picture", make_capture(explanation, source, device, series.place("picture", source))
    if not source.has_geometry or source.num_pixels > _MOST_PIXELS:
        return
    maps = [("class", explanation.diagnosis, explanation.class_map)]
    maps += [("concept", each.name, each.map) for each in explanation.concepts if each.seen]
    for kind, name, found in maps:
        place = series.place("map", source, f"{kind} {name}")
        yield "map", make_map(name, found, source, device, model.preparation, place)


@dataclass(frozen=True)
class _Series:
    """The new series: for each series of the source one of reports, one of pictures, and one for each kind of map."""

    known: dict[tuple[str, ...], tuple[str, int]] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)

    def place(self, kind: str, source: DicomSource, title: str = "") -> dict[str, Any]:
        """UIDs and numbers for the next object; `title` is what maps of one series are of."""
        names = ("PatientID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
        origin = tuple(str(source.header.get(name, "")) for name in names)
        if (*origin, kind, title) not in self.known:
            number = int(source.header.get("SeriesNumber") or 0)
            base = number if 0 < number < _LARGEST_SERIES else _OTHER_SERIES
            before = sum(each[:4] == origin for each in self.known)
            self.known[*origin, kind, title] = (generate_uid(prefix=None), base * 1000 + before + 1)
        uid, number = self.known[*origin, kind, title]
        self.sizes[uid] += 1
        return {
            "series_instance_uid": uid,
            "series_number": number,
            "sop_instance_uid": generate_uid(prefix=None),
            "instance_number": self.sizes[uid],
        }
