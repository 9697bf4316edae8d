"""Explanations as DICOM objects beside the study: a report, a picture and, where there is a geometry, maps."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from parsecaps.data.files import make_private_folder, plain_name, write_binary
from parsecaps.data.raw_image import silence
from parsecaps.explain.explanation import Explanation
from parsecaps.export.dicom_capture import make_capture
from parsecaps.export.dicom_map import make_map
from parsecaps.export.dicom_report import make_report
from parsecaps.export.dicom_source import Device, DicomSource, new_uid
from parsecaps.prediction.bundle import Bundle

_KINDS = ("report", "picture", "map")  # the last digit of the number of a series is the place of its kind here
_LARGEST_SERIES = 10**6
_OTHER_SERIES = 9
_LONGEST_NAME = 40


@dataclass(frozen=True)
class DicomWritten:
    """How many objects of each kind were written, and a line for each image that none was written for."""

    counts: Counter[str]
    errors: list[str]

    def __str__(self) -> str:
        found = [f"{self.counts[kind]:,} {kind}{'s' * (self.counts[kind] != 1)}" for kind in _KINDS]
        return f"{', '.join(found[:-1])} and {found[-1]}"


def check_dicom_folder(folder: Path) -> None:
    """Make the folder that objects go to, and refuse what would end the work only after it."""
    import highdicom  # noqa: F401 (it may not be installed)

    make_private_folder(folder)


def write_dicom(bundle: Bundle, explanations: Sequence[Explanation], folder: Path) -> DicomWritten:
    """Write the objects of each image that came from a DICOM file into a folder; no file there is ever replaced.

    An image of another format, or one whose header lacks what an object must repeat, costs a line. Without any object
    in the end it is a ValueError.
    """
    device, series = Device.of(bundle), _Series()
    counts, errors = Counter[str](), list[str]()
    for number, explanation in enumerate(explanations, 1):
        try:
            source = None if explanation.source is None else DicomSource.read(explanation.source)
            if source is None:
                raise ValueError(f"{explanation.name} is not a DICOM file, so there is no DICOM object about it")
            with silence():
                made = list(_objects(explanation, source, device, bundle, series))
        except (OSError, ValueError) as error:
            errors.append(str(error))
            continue
        for kind, item in made:
            name = plain_name(explanation.name)[:_LONGEST_NAME]
            with write_binary(folder / f"{number:03d}-{name}-{kind}-{item.SOPInstanceUID}.dcm") as file:
                item.save_as(file, enforce_file_format=True)
            counts[kind] += 1
    if not counts:
        raise ValueError(errors[0])
    return DicomWritten(counts, errors)


def _objects(
    explanation: Explanation, source: DicomSource, device: Device, bundle: Bundle, series: "_Series"
) -> Iterator[tuple[str, Any]]:
    """Each object of an image, complete."""
    make: dict[str, Callable[[dict[str, Any]], Any]] = {
        "report": lambda place: make_report(explanation, source, device, place),
        "picture": lambda place: make_capture(explanation, source, device, place),
    }
    if source.has_geometry:
        make["map"] = lambda place: make_map(explanation, source, device, bundle.preparation, place)
    for kind, function in make.items():
        item = function(series.place(kind, source))
        source.complete(item)
        yield kind, item


@dataclass(frozen=True)
class _Series:
    """The new series: one for each kind of object and each series of the source."""

    known: dict[tuple[str, ...], str] = field(default_factory=dict)
    sizes: Counter[str] = field(default_factory=Counter)

    def place(self, kind: str, source: DicomSource) -> dict[str, Any]:
        """UIDs and numbers for the next object."""
        names = ("PatientID", "StudyInstanceUID", "SeriesInstanceUID", "FrameOfReferenceUID")
        key = (kind, *(str(source.header.get(name, "")) for name in names))
        uid = self.known.setdefault(key, new_uid())
        self.sizes[uid] += 1
        number = source.header.get("SeriesNumber") or 0
        base = int(number) if 0 < number < _LARGEST_SERIES else _OTHER_SERIES
        return {
            "series_instance_uid": uid,
            "series_number": base * 1000 + _KINDS.index(kind) + 1,
            "sop_instance_uid": new_uid(),
            "instance_number": self.sizes[uid],
        }
