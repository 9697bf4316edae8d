"""PH2D7: PH2 and Derm7pt together, with one vocabulary of concepts."""

from dataclasses import replace
from pathlib import Path

from parsecaps.data.cases import DataSet
from parsecaps.data.skin import CLASSES, CONCEPTS
from parsecaps.data.sources import derm7pt, ph2
from parsecaps.data.sources.source import Source


def recognise(path: Path) -> bool:
    """Whether one folder holds both."""
    return all(_places(str(path)))


def read(path: str) -> DataSet:
    """Join both; `path` is a folder that holds both, or the two folders with a comma between them."""
    place_ph2, place_derm7pt = _places(path)
    if place_ph2 is None or place_derm7pt is None:
        missing = "PH2 (PH2_dataset.xlsx or .txt)" if place_ph2 is None else "Derm7pt (meta/meta.csv)"
        advice = "give a folder that holds both, or both folders with a comma between them"
        raise FileNotFoundError(f"{path} does not hold {missing}; {advice}")
    parts = [ph2.read(str(place_ph2)), derm7pt.read(str(place_derm7pt))]
    cases = [replace(case, patient=f"{part.source}:{case.patient}") for part in parts for case in part.cases]
    return DataSet(
        "ph2d7",
        Path(path) if Path(path).is_dir() else parts[0].root,
        CLASSES,
        CONCEPTS,
        cases,
        [problem for part in parts for problem in part.problems],
        [f"{part.source}: {note}" for part in parts for note in part.notes],
    )


def _places(path: str) -> tuple[Path | None, Path | None]:
    """Where PH2 and Derm7pt are, among the given folders and the folders directly in them."""
    given = [Path(path)] if Path(path).is_dir() else [Path(part.strip()) for part in path.split(",")]
    folders = [place for place in given if place.is_dir()]
    folders += [child for place in list(folders) for child in sorted(place.iterdir()) if child.is_dir()]
    first = next((place for place in folders if ph2.recognise(place)), None)
    second = next((place for place in folders if derm7pt.recognise(place)), None)
    return first, second


SOURCE = Source(
    name="ph2d7",
    summary="PH2 and Derm7pt together",
    layout="a folder that holds PH2 and Derm7pt, or ph2d7:PATH_TO_PH2,PATH_TO_DERM7PT",
    recognise=recognise,
    read=read,
)
