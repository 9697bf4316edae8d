"""Explains DICOM images and writes the objects about them, for the tests."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pydicom

from parsecaps.explain.explanation import Explanation
from parsecaps.export.dicom_report import write_dicom
from parsecaps.model import Model


def seen(explanation: Explanation, count: int = 2) -> Explanation:
    """The same, with the first concepts seen and the others not."""
    concepts = tuple(replace(each, seen=i < count) for i, each in enumerate(explanation.concepts))
    return replace(explanation, concepts=concepts)


def write(model: Model, folder: Path, *images: Path | tuple[Path, int], count: int = 2) -> dict[str, list[Any]]:
    """The objects of some images or frames, by their kind, in order."""
    pairs = [each if isinstance(each, tuple) else (each, None) for each in images]
    found = [seen(model.explain(path, frame=frame, trees=0), count) for path, frame in pairs]
    written = write_dicom(model, found, folder)
    assert written.errors == []
    return read_objects(folder)


def read_objects(folder: Path) -> dict[str, list[Any]]:
    kinds: dict[str, list[Any]] = {"report": [], "picture": [], "map": []}
    for path in sorted(folder.glob("*-2.25.*.dcm")):
        kinds[path.name.split("-2.25.")[0].rpartition("-")[2]].append(pydicom.dcmread(path))
    return {kind: sorted(found, key=lambda each: int(each.InstanceNumber)) for kind, found in kinds.items()}


def items(node: Any, kind: str, meaning: str | None = None) -> list[Any]:
    """All content items of a report below a node that have this type, and this name."""
    found = []
    for each in node.get("ContentSequence", []):
        if each.ValueType == kind and meaning in (None, each.ConceptNameCodeSequence[0].CodeMeaning):
            found.append(each)
        found += items(each, kind, meaning)
    return found
